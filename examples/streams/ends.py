"""The producers and the consumer, each a process that may be killed and started again.

``python -m examples.streams.ends produce URL FOLDER NUMBER ROWS PACE``
``python -m examples.streams.ends consume URL FOLDER RATE [all]``

A producer sends its carriers' flights a day at a time and notes each day that the broker has accepted.
Started again it goes on behind those, with a day that may be there in part. No producer is more than a day
ahead of another. The consumer keeps each row by its message-id in SQLite before it settles it, and rejects a
row without an airport's name unless it is to take all.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from proton import Message, ProtonException
from proton.utils import BlockingConnection

from broker.client.link import Connection, Sender
from broker.errors import SluiceError
from examples.streams import books

PRODUCERS = 2
STREAM, QUEUE, DEAD, AGAIN = "flights", "delays", "delays.dead", "delays.again"
PATIENCE_S, PAUSE_S = 20.0, 0.1


# --- producers


def encoded(row: dict[str, Any]) -> bytes:
    """A flight as a message; those of a carrier are one group."""
    message = Message(body=json.dumps(row).encode(), durable=True, group_id=str(row["carrier"]))
    message.id = f"flight-{row['row']}"
    message.content_type = "application/json"
    return bytes(message.encode())


class Producer:
    """One of ``PRODUCERS``; a lost connection is made again, and the day that was under way is sent again."""

    def __init__(self, url: str, folder: Path, number: int) -> None:
        self._url = url
        self._folder = folder
        self._number = number
        self._connection: Connection | None = None
        self._sender: Sender | None = None

    def run(self, count: int, pace_s: float) -> None:
        """Every day that isn't noted yet, one in ``pace_s`` at most."""
        for day, rows in enumerate(books.days(count)):
            if day < done(self._folder, self._number):
                continue
            begin_s = time.monotonic()
            while min(done(self._folder, each) for each in range(PRODUCERS)) < day:
                time.sleep(PAUSE_S)
            self._send([encoded(row) for row in rows if self._is_mine(row)])
            note(self._folder, self._number, day + 1)
            time.sleep(max(begin_s + pace_s - time.monotonic(), 0.0))

    def _is_mine(self, row: dict[str, Any]) -> bool:
        return zlib.crc32(str(row["carrier"]).encode()) // 8 % PRODUCERS == self._number

    def _send(self, messages: list[bytes]) -> None:
        while True:
            try:
                if self._sender is None:
                    self._connection = Connection(self._url)
                    self._sender = self._connection.sender(STREAM)
                for message in messages:
                    self._sender.send(message, PATIENCE_S)
                self._sender.flush(PATIENCE_S)
                if self._sender.accepted == self._sender.sent:
                    return
            except SluiceError as error:
                print(f"producer {self._number}: {error}", file=sys.stderr, flush=True)
            if self._connection is not None:
                self._connection.close()
            self._connection = self._sender = None
            time.sleep(PAUSE_S)


def done(folder: Path, number: int) -> int:
    """How many days a producer has brought to the broker."""
    file = folder / f"producer-{number}"
    return int(file.read_text()) if file.exists() else 0


def note(folder: Path, number: int, days: int) -> None:
    """That these have been accepted; whole, or not at all."""
    part = folder / f"producer-{number}.part"
    part.write_text(str(days))
    part.rename(folder / f"producer-{number}")


def mark(url: str, at: str) -> None:
    """The end mark: a message with nothing but a time."""
    message = Message(body=json.dumps({"time_hour": at}).encode(), id="end", durable=True)
    with Connection(url) as connection:
        sender = connection.sender(STREAM)
        sender.send(bytes(message.encode()), PATIENCE_S)
        sender.flush(PATIENCE_S)


# --- the consumer


def store(folder: Path) -> sqlite3.Connection:
    """What the consumer keeps, a new file where there is none."""
    found = sqlite3.connect(folder / "kept.db", timeout=PATIENCE_S)
    found.execute("PRAGMA journal_mode=WAL")
    found.execute(
        "CREATE TABLE IF NOT EXISTS delays"
        " (id TEXT PRIMARY KEY, airport TEXT, flights INT, delayed INT, minutes INT, came INT)"
    )
    return found


def keep(database: sqlite3.Connection, id_: str, row: dict[str, Any]) -> None:
    """A row, or that it came again."""
    sums = (row["airport"], row["flights"], row["delayed"], row["minutes"])
    database.execute(
        "INSERT INTO delays VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET came = came + 1",
        (id_, *sums),
    )
    database.commit()


def kept(folder: Path) -> tuple[dict[str, books.Delays], int]:
    """The rows by their ids, and how often one came that was there already."""
    connection = store(folder)
    try:
        rows = connection.execute("SELECT * FROM delays").fetchall()
    finally:
        connection.close()
    return {row[0]: books.Delays(*row[1:5]) for row in rows}, sum(row[5] - 1 for row in rows)


def consume(url: str, folder: Path, rate: float, *, takes_all: bool) -> None:
    """Until it is killed; at most ``rate`` rows a second."""
    database = store(folder)
    while True:
        try:
            _take(BlockingConnection(url, timeout=PATIENCE_S), database, rate, takes_all)
        except (ProtonException, OSError) as error:
            print(f"consumer: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)


def _take(connection: BlockingConnection, database: sqlite3.Connection, rate: float, takes_all: bool) -> None:
    receiver = connection.create_receiver(AGAIN if takes_all else QUEUE, credit=20)
    due_s = time.monotonic()
    while True:
        message = receiver.receive(timeout=3600)
        row = json.loads(body_of(message))
        if row["airport"] is None and not takes_all:
            receiver.reject()
        else:
            keep(database, str(message.id), row)
            receiver.accept()
        due_s = max(due_s + 1 / rate, time.monotonic())
        time.sleep(max(due_s - time.monotonic(), 0))


def body_of(message: Message) -> bytes:
    """The bytes of a data section."""
    assert isinstance(message.body, bytes | memoryview)
    return bytes(message.body)


def main(verb: str, url: str, folder: str, *words: str) -> None:
    """One of the two."""
    if verb == "produce":
        number, count, pace = words
        Producer(url, Path(folder), int(number)).run(int(count), float(pace))
    else:
        rate, *more = words
        consume(url, Path(folder), float(rate), takes_all=bool(more))


if __name__ == "__main__":
    main(*sys.argv[1:])
