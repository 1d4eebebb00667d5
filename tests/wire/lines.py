"""Command lines in the test's own process: what the program does, without a Python's start for each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.cli import main as cli
from tests.wire.conftest import RunningBroker


class Lines:
    """`sluice` against one broker."""

    def __init__(self, broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """What it prints; on stderr if it is refused."""
        self._capsys.readouterr()
        found = cli.main(list(words))
        captured = self._capsys.readouterr()
        assert found == status, captured
        return captured.out if status == 0 else captured.err

    def parsed(self, *words: str) -> Any:
        """What it prints with --json."""
        return json.loads(self(*words, "--json"))


@pytest.fixture
def lines(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Lines:
    """For the test's broker."""
    monkeypatch.setenv("SLUICE_BROKER", broker.url)
    return Lines(broker, capsys)
