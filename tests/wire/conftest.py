"""A real broker in its own process, for tests that speak to it over real sockets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from broker.client.errors import ClientError
from broker.client.request import Management
from broker.errors import NotFoundError, OperatorError
from tests.wire import forked

# A busy machine takes seconds for it, and again for the first answer over HTTP, since the port's libraries
# are loaded by its first client; a sanitized broker takes longer still.
START_SECONDS = float(os.environ.get("SLUICE_START_SECONDS", "60"))
# A stop waits ten seconds for clients that stay, and needs the processor after that.
STOP_SECONDS = 30


def start_process(
    words: Sequence[str], env: Mapping[str, str], stderr: int, *, misplaces: bool = False
) -> subprocess.Popen[bytes] | forked.ForkedProcess:
    """Start `sluice WORDS` with variables beside ours and its standard error at a file descriptor.

    ``misplaces``: its cells hand connections to a cell that has not the node of their first link.
    """
    if forked.is_wanted(env) and not misplaces:
        return forked.started(words, env, stderr)
    told = {**os.environ, "PYTHONUNBUFFERED": "1", **env}
    module = "tests.wire.wrong_cells" if misplaces else "broker.cli.main"
    return subprocess.Popen([sys.executable, "-m", module, *words], stderr=stderr, env=told)


class RunningBroker:
    """`sluice serve` on free loopback ports. ``log`` holds what it said on stderr so far."""

    def __init__(self, folder: Path, config: str, policies: str, args: Sequence[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config_file = folder / "broker.yaml"
        self.policy_file = folder / "policies.yaml"
        self.config_file.write_text(config)
        self.policy_file.write_text(policies or "policies: []\n")
        self.lines: list[str] = []
        words = [
            *("serve", "--config", str(self.config_file), "--policies", str(self.policy_file)),
            *("--data", str(folder / "data"), "--listen", "amqp://127.0.0.1:0"),
            *("--http", "127.0.0.1:0", *args),
        ]
        self.cells = cells_for(config, args)
        if self.cells > 1:
            words += ["--cells", str(self.cells)]
        reading, writing = os.pipe()
        self._stderr = os.fdopen(reading, errors="backslashreplace")
        self.process = start_process(words, {}, writing, misplaces=self.cells > 1)
        os.close(writing)
        self._settled = False
        self._attention = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._await_ready()
            self.port = int(self._find(r"listening amqp://127\.0\.0\.1:(\d+)"))
            self.http_port = int(self._find(r"listening https?://\S+:(\d+)"))
        except BaseException:
            self._abandon()
            raise
        self.url = f"amqp://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self.process.pid

    @property
    def log(self) -> str:
        """What the broker has said so far."""
        return "\n".join(self.lines)

    def wait_for_log(self, text: str, seconds: float = 30) -> None:
        """Until the broker has said ``text``."""
        wait_until(lambda: text in self.log, seconds, f"the log to say {text!r}:\n{self.log}")

    @contextmanager
    def unheard(self) -> Iterator[None]:
        """Nobody reads what it says while the block runs."""
        with self._attention:
            yield

    def settle(self) -> None:
        """Have all that the HTTP port serves with loaded: memory and waits are compared from then on."""
        if not self._settled:
            # The port is loaded by its first client, the API by its first request, which may be refused.
            for path in ("/healthz", "/api/v1/session"):
                url = f"http://127.0.0.1:{self.http_port}{path}"
                with suppress(HTTPError), urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
                    answer.read()
            self._settled = True

    def signal(self, number: signal.Signals) -> None:
        """Send this broker, and nothing else, a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """Stop in order; its exit status. A broker that doesn't stop is killed and fails the test."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            # What it said last is read by then; its pipe is not to be closed under who reads it.
            self._reader.join(STOP_SECONDS)
            self._stderr.close()
        return status

    def _read(self) -> None:
        for line in self._stderr:
            with self._attention:
                self.lines.append(line.rstrip("\n"))

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not any(re.search(r"\bready(\"})?$", line) for line in self.lines):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._abandon()
                raise RuntimeError(f"the broker did not start:\n{self.log}")
            time.sleep(0.01)

    def _abandon(self) -> None:
        """End one that did not start, and close its pipe: nobody can call ``stop``. Twice is no fault."""
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        self._stderr.close()

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.log)
        assert found is not None, self.log
        return found[1]


def cells_for(config: str, args: Sequence[str]) -> int:
    """Return how many cells a broker is started with as pytest's `--cells` says, 1 without it.

    Its connections go to a wrong cell, so that their first links are passed on. One whose test says how
    many it has is left alone, and so is a member of a cluster.
    """
    wanted = int(os.environ.get("SLUICE_TEST_CELLS", "0"))
    if wanted < 2 or "--cells" in args or "cells:" in config or "cluster:" in config:
        return 1
    return wanted


def in_one_cell(*patterns: str) -> str:
    """Return the lines of policies that give nodes one cell, none for brokers that have no others.

    For those that one transaction takes in, and for dead letters, which stay in the cell of their queue.
    """
    if cells_for("", ()) == 1:
        return ""
    return "".join(f"  - {{match: '{pattern}', cell: 1}}\n" for pattern in patterns)


def wait_until(
    condition: Callable[[], bool], seconds: float, what: str | Callable[[], str], every_s: float = 0.005
) -> None:
    """Until a condition holds; fails after ``seconds`` with what was waited for, as it is said at the end.

    A queue comes with the first link to it, which others may yet attach: one that isn't there holds nothing.
    One look begins when the time is over: an earlier one may have taken all of it, and seen how it was then.
    """
    deadline = time.monotonic() + seconds
    is_over = False
    while not _holds(condition):
        assert not is_over, f"waited {seconds} s for {what if isinstance(what, str) else what()}"
        time.sleep(every_s)
        is_over = time.monotonic() >= deadline


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except NotFoundError:
        return False


class SharedBroker:
    """One broker for the tests of a module, each of which finds it without connections and nodes.

    Where any are left behind and can't be taken away, or it answers no more, the next test has a new one.
    """

    def __init__(self, folder: Path, config: str = "", policies: str = "") -> None:
        self._folder = folder
        self._settings = config, policies, ()
        self._started = 0
        self._running: RunningBroker | None = None

    @contextmanager
    def lent(self) -> Iterator[RunningBroker]:
        """For one test; a traceback in what it has said since fails the test."""
        if self._running is None:
            self._started += 1
            self._running = RunningBroker(self._folder / f"broker{self._started}", *self._settings)
        broker = self._running
        said_before = len(broker.lines)
        try:
            yield broker
        finally:
            if not _is_cleared(broker):
                self.stop()
            said = "\n".join(broker.lines[said_before:])
            assert "Traceback" not in said, said

    def stop(self) -> None:
        """End it, if it runs."""
        broker, self._running = self._running, None
        if broker is not None:
            broker.stop()
            assert "Traceback" not in broker.log, broker.log


def _is_cleared(broker: RunningBroker) -> bool:
    """Whether every connection is gone and every node could be deleted."""
    if broker.process.poll() is not None:
        return False
    try:
        with Management(broker.url) as management:
            wait_until(lambda: len(_names(management, "connection", "identity")) == 1, 2, "others to be gone")
            for kind in ("topic", "queue"):
                for name in _names(management, kind, "name"):
                    # A topic takes its subscriptions with it; a temporary queue goes with its connection.
                    if not name.startswith("$"):
                        with suppress(NotFoundError):
                            management.call("DELETE", f"org.sluice.{kind}", name)
    except (AssertionError, ClientError, OperatorError):
        return False
    return True


def _names(management: Management, kind: str, attribute: str) -> set[str]:
    body = management.call("QUERY", f"org.sluice.{kind}", body={"attributeNames": [attribute]}).body
    assert isinstance(body, dict)
    return {str(row[0]) for row in body["results"]}


StartBroker = Callable[..., RunningBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers with their own settings: ``start_broker(config="", policies="", args=())``."""
    running: list[RunningBroker] = []

    def start(config: str = "", policies: str = "", args: Sequence[str] = ()) -> RunningBroker:
        broker = RunningBroker(tmp_path / f"broker{len(running)}", config, policies, args)
        running.append(broker)
        return broker

    yield start
    for broker in running:
        broker.stop()
        assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    """One broker with the defaults."""
    return start_broker()


@pytest.fixture(scope="module")
def shared_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedBroker]:
    """A broker for the tests of a module, with the module's CONFIG and POLICIES where it has them."""
    settings = (getattr(request.module, name, "") for name in ("CONFIG", "POLICIES"))
    shared = SharedBroker(tmp_path_factory.mktemp("shared"), *settings)
    yield shared
    shared.stop()
