"""Several cells under one supervisor: started, stopped, killed, restarted; and data that isn't for them."""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.wire.cells import kill_cell, pids_of, wait_for_cell
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.forked import run_sluice

CELLS = ("--cells", "3")


def test_cells_are_processes_with_a_folder_and_a_private_socket_each(start_broker: StartBroker) -> None:
    broker = start_broker(args=CELLS)
    data = broker.config_file.parent / "data"
    assert sorted(pids_of(broker)) == [0, 1, 2]
    for cell in range(3):
        assert (data / f"cell-{cell}").is_dir()
        socket = (data / f"cell-{cell}.sock").stat()
        assert stat.S_ISSOCK(socket.st_mode)
        assert stat.S_IMODE(socket.st_mode) == 0o600
        assert f"cell-{cell} sluice.cells: sluice" in broker.log
    assert broker.log.count("\nlistening amqp://") == 1
    pids = pids_of(broker)
    assert broker.stop() == 0
    assert broker.log.endswith("sluice stopped")
    assert not [each for each in data.iterdir() if each.suffix == ".sock"]
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]


def test_a_killed_cell_is_started_again_alone(start_broker: StartBroker) -> None:
    broker = start_broker(args=CELLS)
    before = pids_of(broker)
    old = kill_cell(broker, 1)
    wait_for_cell(broker, 1, old)
    after = pids_of(broker)
    assert {cell: after[cell] for cell in (0, 2)} == {cell: before[cell] for cell in (0, 2)}
    assert "cell 1 has ended (signal 9)" in broker.log


def test_a_cell_that_ends_again_and_again_is_waited_for_longer(start_broker: StartBroker) -> None:
    broker = start_broker(args=("--cells", "2"))
    for _ in range(3):
        broker.lines.clear()
        wait_for_cell(broker, 0, kill_cell(broker, 0))
        last = broker.log
    assert "started again in 0.4 s" in last


def test_cells_end_with_their_supervisor(start_broker: StartBroker) -> None:
    broker = start_broker(args=CELLS)
    pids = pids_of(broker).values()
    broker.signal(signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "all cells to be gone")
    assert broker.log.count("the supervisor is gone: stopping") == 3


def test_a_reload_reaches_every_cell(start_broker: StartBroker) -> None:
    broker = start_broker(args=CELLS)
    broker.signal(signal.SIGHUP)
    wait_until(lambda: broker.log.count("policies reloaded") == 3, 10, lambda: broker.log)


def test_a_cell_that_can_not_start_ends_the_start(start_broker: StartBroker, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    # Another broker has the directory of a cell.
    start_broker(args=("--data", str(folder / "cell-1")))
    (folder / "cells.json").write_text('{"version": 1, "cells": 2}\n')
    policies = tmp_path / "none.yaml"
    policies.write_text("policies: []\n")
    words = ("serve", "--cells", "2", "--policies", str(policies), "--data", str(folder))
    refused = run_sluice(*words, "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0")
    assert refused.returncode == 1, refused.stderr
    assert "cell 1 can't start: status 1; stopping all" in refused.stderr


@pytest.mark.parametrize("text", ["0", "65", "many", "-1", "1.5"])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    refused = run_sluice("serve", "--check", f"--cells={text}")
    assert refused.returncode == 1
    assert re.search(r"cells: expected a number from 1 to 64, or auto", refused.stderr)


def test_auto_is_one_cell_for_each_processor(start_broker: StartBroker) -> None:
    broker: RunningBroker = start_broker(args=("--cells", "auto"))
    processors = len(os.sched_getaffinity(0))
    assert len(pids_of(broker)) == (processors if processors > 1 else 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            "bridges: [{from: orders, to: prices}]",
            "is in cell . and 'prices' in cell .: a bridge",
        ),
        (
            "routes: [{name: r, url: amqp://mq2, local: 'news.*', remote: news}]",
            "routes: 'r' takes from many topics",
        ),
        (
            "cluster: {engine: nats://10.0.0.1, listen: 127.0.0.1:5690, member: a}",
            "cluster.secret_file: several cells of a cluster need it",
        ),
    ],
)
def test_settings_that_cells_can_not_have_are_refused(tmp_path: Path, settings: str, reason: str) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(f"cells: 4\n{settings}\n")
    refused = run_sluice("serve", "--check", "--config", str(config))
    assert refused.returncode == 1
    assert re.search(reason, refused.stderr), refused.stderr


@pytest.mark.parametrize("twice", [False, True])
def test_a_stop_waits_for_what_is_in_flight_unless_it_is_told_twice(
    start_broker: StartBroker, twice: bool
) -> None:
    """A service manager signals all processes, so that each cell hears it from the supervisor too."""
    broker = start_broker("limits: {shutdown_timeout: 20s}", args=("--cells", "2"))
    connection = BlockingConnection(broker.url, timeout=10)
    connection.create_sender("orders").send(Message("x"))
    receiver = connection.create_receiver("orders", credit=1)
    receiver.receive(timeout=10)
    began = time.monotonic()
    for pid in pids_of(broker).values():
        os.kill(pid, signal.SIGTERM)
    broker.signal(signal.SIGTERM)
    broker.wait_for_log("stopping: waiting for what is in flight")
    # One of the two cells has nothing in flight.
    wait_until(lambda: len(pids_of(broker)) == 1, 10, "the idle cell to end")
    assert broker.process.poll() is None
    if twice:
        broker.signal(signal.SIGTERM)
    else:
        receiver.accept()
        connection.close()
    assert broker.process.wait(15) == 0
    assert time.monotonic() - began < 15
    with suppress(Exception):
        connection.close()
