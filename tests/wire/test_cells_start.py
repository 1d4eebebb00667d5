"""Signals to a supervisor whose cells are still being started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.wire import forked
from tests.wire.conftest import start_process, wait_until

CELLS = 3
Process = subprocess.Popen[bytes] | forked.ForkedProcess


class Starting:
    """`sluice serve` with three cells that nobody has waited for, and what it has said."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        policies = folder / "policies.yaml"
        policies.write_text("policies: []\n")
        words = ["serve", "--cells", str(CELLS), "--policies", str(policies), "--data", str(folder / "data")]
        reading, writing = os.pipe()
        self.process: Process = start_process(
            [*words, "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0"], {}, writing
        )
        os.close(writing)
        self.log = ""
        self._stderr = os.fdopen(reading, errors="backslashreplace")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stderr:
            self.log += line

    def children(self) -> list[int]:
        """Return the processes of the cells there are."""
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in text.split()]

    def end(self) -> None:
        """Be sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        self._stderr.close()


@contextmanager
def starting(folder: Path) -> Iterator[Starting]:
    """A supervisor that is being started, gone afterwards."""
    found = Starting(folder)
    try:
        yield found
    finally:
        found.end()


def test_a_reload_that_meets_a_start_is_made_up_for(tmp_path: Path) -> None:
    with starting(tmp_path / "reload") as broker:
        wait_until(lambda: len(broker.children()) == CELLS, 30, "three processes")
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "cells ready" in broker.log, 60, lambda: broker.log)
        # Each reads again what it may have read before the signal; none has ended by it.
        wait_until(lambda: broker.log.count("policies reloaded") == CELLS, 20, lambda: broker.log)
        assert "has ended" not in broker.log
        broker.process.terminate()
        assert broker.process.wait(30) == 0


@pytest.mark.parametrize("cells", range(CELLS + 1))
def test_a_stop_that_meets_a_start_ends_all_of_it(tmp_path: Path, cells: int) -> None:
    """``cells``: how many have been started when it comes."""
    with starting(tmp_path / "stop") as broker:
        wait_until(lambda: len(broker.children()) >= cells, 30, f"{cells} processes", 0.0)
        if cells == 0:
            # The supervisor has its handlers once it has taken its directory; before that it just ends.
            wait_until(lambda: (tmp_path / "stop" / "data" / "cell-2.sock").exists(), 30, "its sockets", 0.0)
        pids = broker.children()
        broker.process.terminate()
        status = broker.process.wait(30)
        assert status in (0, -signal.SIGTERM) if cells == 0 else status == 0
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "no process of it")
        assert "Traceback" not in broker.log, broker.log
        assert not list((tmp_path / "stop" / "data").glob("*.sock")) or status != 0
    # Nothing is left of it that another start would meet.
    with starting(tmp_path / "again") as broker:
        wait_until(lambda: "cells ready" in broker.log, 60, lambda: broker.log)
        broker.process.terminate()
        assert broker.process.wait(30) == 0


def test_a_cell_that_is_killed_before_it_serves_ends_the_start(tmp_path: Path) -> None:
    with starting(tmp_path / "killed") as broker:
        wait_until(lambda: len(broker.children()) >= 1, 30, "a process", 0.0)
        os.kill(broker.children()[0], signal.SIGKILL)
        assert broker.process.wait(60) == 1
        wait_until(lambda: "can't start" in broker.log, 10, lambda: broker.log)
        assert "cells ready" not in broker.log
