"""Answers of a server to records: each is for one record, and a second one is for none."""

from __future__ import annotations

import re
import socket
import threading
import time

from broker.cluster.jetstream import JetStreamLog, LogServers
from broker.cluster.log import Acked, AppendRefused, Outcome

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
