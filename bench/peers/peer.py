"""What a broker must say of itself to be measured, and running one in a folder and on a port of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.contenders import OURS, BenchError, Running, free_port
from broker.cli.terminal.localpid import listening_pid
from broker.client.errors import ClientError
from broker.client.link import Connection

OURS_TITLE = "Sluice"
START_S = 90.0
LOOK_S = 0.2
STOP_S = 10.0
LAST_WORDS = 600  # characters of a log
# Queues of this name have each broker's own limit of so many messages, or the nearest it has.
LIMITED = "flow.thousand."
LIMIT_MSGS = 1000


class MissingError(Exception):
    """This broker can't be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start what was prepared: the broker's command, and what must run beside it.

    ``then`` is called once the broker answers; it may raise BenchError.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[Sequence[str]] = ()
    then: Callable[[], None] | None = None


class Peer(Protocol):
    """A broker as it is set up here.

    ``limit`` and ``syncs`` are sentences for the report, ``commit_sync`` a few words for its table: the
    default that decides how a commit reaches the disk, and nothing where there are no transactions.
    """

    title: str
    limit: str
    syncs: str
    commit_sync: str

    @property
    def settings(self) -> Sequence[str]:
        """How it is set up, in sentences; some are known only once it is prepared."""

    def find(self) -> str:
        """Its version, after fetching it if need be. Raises MissingError."""

    def prepare(self, folder: Path, port: int) -> Launch:
        """Write its configuration into an empty folder. Raises MissingError."""

    def address(self, queue: str) -> str:
        """What a client attaches to."""

    def url(self, port: int) -> str:
        """Where it is, with the user a client needs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A running broker, how its queues are called, and what a scenario has to say beside its figures."""

    peer: Peer
    running: Running
    overtaken: list[int] = field(default_factory=list)  # messages out of order, a run
    remarks: list[str] = field(default_factory=list)


def version_of(text: str) -> str:
    """The first version number in what a program says of itself. Raises MissingError."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    if found is None:
        raise MissingError(f"no version in {text.strip()[:80]!r}")
    return found.group()


def said(*command: str) -> str:
    """All that a short command prints. Raises MissingError with its reason."""
    if shutil.which(command[0]) is None:
        raise MissingError(f"{command[0]} is not on the PATH")
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{command[0]} did not answer") from error
    if ended.returncode:
        raise MissingError(f"{' '.join(command)}: {(ended.stderr or ended.stdout).strip()[-200:]}")
    return ended.stdout + ended.stderr


def java() -> str:
    """The Java that will run the brokers written in it. Raises MissingError."""
    return "Java " + version_of(said("java", "-version"))


@contextmanager
def started(peer: Peer) -> Iterator[Subject]:
    """Runs it while the block does; raises BenchError with its last words if it doesn't start."""
    if peer.title == OURS_TITLE:
        with OURS.started() as running:
            yield Subject(peer, running)
        return
    # A Java program may still write while it ends.
    with (
        tempfile.TemporaryDirectory(prefix="sluice-peer-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder, port = Path(name), free_port()
        launch = peer.prepare(folder, port)
        env = os.environ | {"HOME": name} | dict(launch.env)
        log = folder / "out.log"
        file = stack.enter_context(log.open("wb"))
        for command in launch.beside:
            stack.callback(_end, _begin(command, env, folder, file.fileno()))
        process = _begin(launch.command, env, folder, file.fileno())
        stack.callback(_end, process)
        _await(peer.url(port), process, log)
        if launch.then is not None:
            launch.then()
        pid = listening_pid(peer.url(port))
        if pid is None:
            raise BenchError(f"{peer.title}: no process listens on its port")
        yield Subject(peer, Running(peer.url(port), pid, folder))


def _begin(
    command: Sequence[str], env: Mapping[str, str], folder: Path, output: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all it started: start scripts leave their broker behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"did not start: {log.read_text(errors='replace').strip()[-LAST_WORDS:]}")
        time.sleep(LOOK_S)


def _answers(url: str) -> bool:
    try:
        Connection(url, timeout_s=5).close()
    except (ClientError, OSError):
        return False
    return True
