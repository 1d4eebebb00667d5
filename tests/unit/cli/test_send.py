"""Sending from the command line: it says that it waits, and for what."""

from __future__ import annotations

import argparse
import socket

import pytest

from broker.cli.verbs.send import SILENT_S, WaitNotice
from broker.client.errors import ClientTimeoutError


class SlowSender:
    """A sender whose first try takes too long, and whose second has more time."""

    def __init__(self, credit: int, sent: int, settled: int) -> None:
        self.credit, self.sent, self.settled = credit, sent, settled
        self.limits: list[float | None] = []

    def send(self, message: bytes, limit_s: float | None) -> None:
        self.flush(limit_s)

    def flush(self, limit_s: float | None) -> None:
        self.limits.append(limit_s)
        if len(self.limits) == 1:
            raise ClientTimeoutError("not yet")


@pytest.mark.parametrize(
    ("sender", "what"),
    [
        (SlowSender(0, 10, 10), "credit"),
        (SlowSender(5, 1000, 0), "the outcome of 1,000 messages"),
        (SlowSender(5, 0, 0), "the connection"),
    ],
)
def test_waiting_is_told_once_and_goes_on(
    sender: SlowSender, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    args = argparse.Namespace(address="orders", broker=f"amqp://127.0.0.1:{port}")
    WaitNotice(args, sender, "sluice-send-1").send(b"x", None)  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"sluice send: waiting for {what} at orders\n"
    assert sender.limits == [SILENT_S, None]


def test_a_short_timeout_stays_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    sender = SlowSender(0, 0, 0)
    with pytest.raises(ClientTimeoutError):
        WaitNotice(argparse.Namespace(), sender, "").flush(0.5)  # type: ignore[arg-type]
    assert (sender.limits, capsys.readouterr().err) == ([0.5], "")
