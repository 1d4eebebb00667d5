"""One broker and every client program, each built and run once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import programs
from tests.clients.programs import Cell, Program
from tests.wire.conftest import RunningBroker, start_broker

__all__ = ["Clients", "clients", "start_broker"]


class Clients:
    """The programs against one broker; each is built, and its features run, when it is first asked for."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.env = programs.environment(broker.url, f"ws://127.0.0.1:{broker.http_port}/")
        self._built: dict[str, Exception | None] = {}
        self._cells: dict[str, dict[str, Cell]] = {}

    def built(self, program: Program) -> Program:
        """The program, ready to run. Without its tools the test is skipped, but fails where CI is set."""
        missing = programs.missing_tools(program)
        if missing:
            say = pytest.fail if os.environ.get("CI") else pytest.skip
            say(f"{program.name} needs {', '.join(missing)}")
        if program.folder not in self._built:
            try:
                programs.build(program)
                self._built[program.folder] = None
            except Exception as fault:  # noqa: BLE001 - told to every test of that program
                self._built[program.folder] = fault
        failed = self._built[program.folder]
        if failed is not None:
            pytest.fail(str(failed))
        return program

    def cells(self, program: Program) -> dict[str, Cell]:
        """What each feature came to; one that was never reached is a failure."""
        if program.name not in self._cells:
            self.built(program)
            wanted = programs.features()
            process = programs.start(program, self.env, "features", program.name, *wanted)
            ran = programs.ran(process, programs.FEATURES_S)
            cells = {
                str(line["feature"]): Cell(str(line["result"]), str(line.get("why") or ""))
                for line in ran.lines
                if "feature" in line
            }
            lost = Cell("fail", f"never reached (status {ran.status}): {ran.stderr[-2000:]}")
            self._cells[program.name] = {name: cells.get(name, lost) for name in wanted}
        return self._cells[program.name]


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    policies = (Path(__file__).parent / "policies.yaml").read_text()
    broker = RunningBroker(tmp_path_factory.mktemp("clients"), "", policies, ())
    yield Clients(broker)
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def spring_built(clients: Clients) -> None:
    """The Spring Boot application, ready to run."""
    clients.built(programs.SPRING)
