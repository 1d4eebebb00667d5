"""Answers of a server to records: each is for one record, and a second one is for none."""

from __future__ import annotations

import re
import socket
import threading
import time
from typing import Any

import pytest

from broker.cluster.jetstream import JetStreamLog, LogServers
from broker.cluster.log import Acked, AppendRefused, EngineFault, Outcome, Unknown

SUBSCRIBED = re.compile(rb"SUB (\S+)\.\* (\S+)\r\n")
PUBLISHED = re.compile(rb"HPUB \S+ (\S+) \d+ \d+\r\n")
WRONG = b'{"error":{"code":400,"err_code":10071}}'
TAKEN = b'{"stream":"s","seq":%d}'


class TwiceAnswering:
    """A server that refuses the first record, and says that it took it once the second one came."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._listening:
            connected, _ = self._listening.accept()
        with connected:
            connected.settimeout(20)
            connected.sendall(b'INFO {"version":"2.15.2","headers":true,"max_payload":1048576}\r\n')
            data = b""
            told = 0
            while piece := connected.recv(65536):
                data += piece
                if b"PING\r\n" in piece:
                    connected.sendall(b"PONG\r\n")
                replies = PUBLISHED.findall(data)
                subscribed = SUBSCRIBED.findall(data)
                if len(replies) > told and subscribed:
                    told = len(replies)
                    sid = next(sid for inbox, sid in subscribed if replies[0].startswith(inbox))
                    answers = [(0, WRONG)] if told == 1 else [(0, TAKEN % 8), (1, TAKEN % 9)]
                    for at, body in answers:
                        connected.sendall(b"MSG %s %s %d\r\n%s\r\n" % (replies[at], sid, len(body), body))

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(20)


def outcomes(log: JetStreamLog) -> list[Outcome]:
    found: list[Outcome] = []
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        found = log.outcomes(0.2)
    return found


def test_a_second_answer_is_not_taken_for_that_of_a_record_behind_the_same_position() -> None:
    server = TwiceAnswering()
    log = JetStreamLog(LogServers((server.url,), timeout_s=20), "c", 1)
    log.append(b"first", 7)
    assert outcomes(log) == [AppendRefused(7)]
    # Another record is sent behind the same position; the server answers the first one again, then this one.
    log.append(b"second", 7)
    assert outcomes(log) == [Acked(7, 9)]
    log.close()
    server.join()


def test_a_record_that_the_server_would_end_the_connection_for_is_a_fault() -> None:
    server = TwiceAnswering()
    log = JetStreamLog(LogServers((server.url,), timeout_s=20), "c", 1)
    with pytest.raises(EngineFault, match="a record has 1048576 bytes, and max_payload is 1048576"):
        log.append(bytes(1 << 20), 7)
    log.close()
    server.join()


class Asked(JetStreamLog):
    """A log whose leader answers every question, and takes what it likes."""

    def __init__(self) -> None:
        super().__init__(LogServers(("nats://127.0.0.1:1",), timeout_s=0.5), "main")
        self.position = 5
        self.verbs: list[str] = []

    def _ask(
        self, verb: str, body: dict[str, Any] | None = None, again_s: float | None = None
    ) -> dict[str, Any]:
        self.verbs.append(verb)
        return {"state": {"last_seq": self.position}}

    def tell(self, *outcomes: Outcome) -> None:
        self._told += outcomes
        self.outcomes(0)

    @property
    def has_asked_for_another(self) -> bool:
        return "STREAM.LEADER.STEPDOWN.SLUICE_main" in self.verbs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the log goes by."""
    now = [100.0]
    monkeypatch.setattr("broker.cluster.jetstream.time.monotonic", lambda: now[0])
    return now


def test_a_leader_that_answers_and_takes_nothing_is_asked_to_step_down(clock: list[float]) -> None:
    log = Asked()
    for _ in range(5):
        log.tell(Unknown(5))
        assert log.last() == 5
        assert not log.has_asked_for_another
        clock[0] += 0.6
    log.tell(Unknown(5))
    log.last()
    assert log.has_asked_for_another
    # It has as long again before the next one is asked for.
    log.verbs.clear()
    clock[0] += 1.0
    log.last()
    assert not log.has_asked_for_another


@pytest.mark.parametrize("sign", ["taken", "refused", "position", "nothing sent"])
def test_a_leader_that_takes_anything_goes_on(clock: list[float], sign: str) -> None:
    log = Asked()
    for _ in range(10):
        if sign != "nothing sent":
            log.tell(Unknown(5))
        log.last()
        clock[0] += 1.5
        if sign == "taken":
            log.tell(Acked(5, 6))
        elif sign == "refused":
            log.tell(AppendRefused(5))
        log.position += sign == "position"
    assert not log.has_asked_for_another
