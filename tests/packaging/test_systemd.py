"""The systemd unit: what it says holds, and a broker does what it is told in it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.notify import notify
from tests.needs import program
from tests.wire.conftest import StartBroker, start_broker

__all__ = ["start_broker"]

UNIT = Path(__file__).parents[2] / "etc/systemd/sluice.service"


def in_unit(key: str) -> str:
    """The last value of a key."""
    found: list[str] = re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return found[-1]


class Manager:
    """A service manager's socket, as far as a service sees it."""

    def __init__(self, address: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.settimeout(10)
        self.sock.bind(address)

    def hears(self, wanted: str) -> bool:
        """Until the service has said ``wanted``; TimeoutError if it doesn't."""
        while self.sock.recv(4096).decode() != wanted:
            pass
        return True


@pytest.fixture(params=["path", "abstract"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Manager]:
    """A manager whose socket has a name in the file system, or none."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@sluice-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    manager = Manager(name.replace("@", "\0"))
    yield manager
    manager.sock.close()


def test_the_broker_tells_that_it_is_ready_alive_and_stopping(
    manager: Manager, start_broker: StartBroker
) -> None:
    broker = start_broker()
    assert manager.hears("READY=1")
    assert manager.hears("WATCHDOG=1")
    broker.signal(signal.SIGTERM)
    assert manager.hears("STOPPING=1")


def test_a_manager_that_is_gone_or_was_never_there_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")


def test_a_manager_that_does_not_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify")
    input_stopped = Manager(name)
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    for _ in range(10_000):
        notify("WATCHDOG=1")
    input_stopped.sock.close()


def installed(folder: Path) -> Path:
    """The unit with the command of this environment, which is there."""
    copy = folder / UNIT.name
    command = Path(sys.prefix) / "bin/sluice"
    assert command.exists(), "these tests need the package installed"
    copy.write_text(UNIT.read_text().replace("/opt/sluice/bin/sluice", str(command)))
    return copy


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(installed(tmp_path))], capture_output=True, text=True, timeout=60
    )
    # What other units of this machine are warned of is not ours.
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])


def test_the_unit_is_hardened(tmp_path: Path) -> None:
    """Systemd's own measure of what a service may still do: 0 is nothing, 10 everything."""
    analyze = program("systemd-analyze")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", str(installed(tmp_path))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# MemoryDenyWriteExecute, as the kernel has it for a process and what it executes.
CONFINED = """
import ctypes, os, sys
refused = ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(77)"] if refused else sys.argv[1:])
"""


def test_it_runs_where_no_memory_becomes_executable(tmp_path: Path) -> None:
    assert in_unit("MemoryDenyWriteExecute") == "yes"
    serve = [sys.executable, "-m", "broker.cli.main", "serve", "--data", str(tmp_path / "data")]
    ports = ["--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, "-c", CONFINED, *serve, *ports], stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stderr is not None
        said = []
        for line in broker.stderr:
            said.append(line)
            if line.rstrip().endswith("ready"):
                broker.terminate()
    if broker.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert broker.returncode == 0, "".join(said)


def test_the_command_is_one_that_the_broker_takes() -> None:
    words = in_unit("ExecStart").split()
    assert words[:2] == ["/opt/sluice/bin/sluice", "serve"]
    usage = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [flag for flag in words[2:] if flag.startswith("--") and flag not in usage] == []
