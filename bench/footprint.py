"""``python -m bench.footprint``: the disk that durable messages take, as a multiple of `store_limit`.

`store_limit` counts encoded messages. On disk each has a record around it, the journal has files that are
full, open or ready, and a file whose messages have mostly been consumed stays until the rest is written
elsewhere. So for each size of message and each limit the store is filled until producers get no credit:

1. ``filled``: one queue, and nobody consumes;
2. ``consumed``: then a producer and a consumer go on at full speed on the full store;
3. ``mixed``: two queues, filled in turns, of which one is consumed and filled again, so that the messages of
   the other, which nobody consumes, lie between what is gone.

The blocks of every file of the journal are added up twenty times a second, with the reserve for a full disk
in them and without what is paged out. The highest sum counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bench.contenders import OURS, Contender, Running
from bench.measuring import number
from broker.client.link import Connection, Receiver, Sender
from broker.client.request import Management
from broker.codec import sections
from broker.store.pager import TEMP
from broker.units import format_size, parse_size

# What docs/operations.md tells operators to provide: each message with its record, and so many journal files.
# Where they are small more of them are written while messages move to pages: no less than this in all.
RECORD_BYTES, FILES = 50, 9
LEAST_BYTES = FILES * (32 << 20)
KEPT, OLD = "kept", "old"
POLICIES = "policies:\n  - {match: '#', durable: true, max_size: 0, max_count: 0}\n"
# A store is full when credit hasn't come for so long.
PATIENCE_S = 3.0
SAMPLE_S = 0.05
BATCH = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One size of message at one limit; sizes in bytes, the last three as multiples of the limit."""

    body: int
    limit: int
    journal_file: int
    messages: int
    filled: float
    consumed: float
    mixed: float

    @property
    def factor(self) -> float:
        """The most of all."""
        return max(self.filled, self.consumed, self.mixed)

    @property
    def provided(self) -> float:
        """What the rule has operators provide."""
        files = max(FILES * self.journal_file, LEAST_BYTES)
        return 1 + RECORD_BYTES / self.body + files / self.limit


class Watcher:
    """The most that the files of a directory took so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def most(self) -> int:
        """Since it was last asked; it begins anew."""
        most, self._most = max(self._most, on_disk(self._folder)), 0
        return most

    def end(self) -> None:
        """It watches no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._most = max(self._most, on_disk(self._folder))


def on_disk(folder: Path) -> int:
    """The blocks of all that is kept; files may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        if TEMP not in path.relative_to(folder).parts:
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
    return total


def limited(limit: int, journal_file: int) -> Contender:
    """A broker with this store limit, and no other that matters."""

    def command(port: int, directory: Path) -> list[str]:
        config, policies = directory / "broker.yaml", directory / "policies.yaml"
        config.write_text(f"events: {{enabled: false}}\nstore: {{journal_file_size: {journal_file}}}\n")
        policies.write_text(POLICIES)
        return [
            *(sys.executable, "-m", "broker.cli.main", "serve", "--listen", f"amqp://127.0.0.1:{port}"),
            *("--http", "127.0.0.1:0", "--config", str(config), "--policies", str(policies)),
            *("--data", str(directory / "data"), "--store-limit", str(limit), "--memory-limit", "0"),
        ]

    return replace(OURS, command=command)


def fill(connection: Connection, message: bytes, *senders: Sender) -> int:
    """Send in turns until there is no credit; how many were accepted."""
    begun = sum(sender.accepted for sender in senders)
    while True:
        for sender in senders:
            if not connection.wait_until(sender.may_send, PATIENCE_S):
                for each in senders:
                    each.flush(60)
                return sum(each.accepted for each in senders) - begun
            sender.send(message)


def exchange(
    connection: Connection, message: bytes, sender: Sender, receiver: Receiver, seconds: float
) -> None:
    """Consume and send at full speed for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        receiver.take(BATCH, timeout_s=60)
        sent = 0
        while sent < BATCH and sender.may_send():
            sender.send(message)
            sent += 1
        connection.pump()
    sender.flush(60)


def drain(connection: Connection, address: str, count: int) -> None:
    """Consume so many."""
    receiver = connection.receiver(address, limit=count)
    taken = 0
    while taken < count:
        taken += len(receiver.take(BATCH, timeout_s=60))
    connection.pump()
    receiver.close()


@contextmanager
def watched(limit: int, journal_file: int) -> Iterator[tuple[Running, Watcher]]:
    """A broker, and how much it has on disk."""
    with limited(limit, journal_file).started() as running:
        watcher = Watcher(running.directory / "data")
        try:
            yield running, watcher
        finally:
            watcher.end()


def stored(running: Running) -> int:
    """What the broker counts against its limit."""
    with Management(running.url) as management:
        found = management.call("READ", "org.sluice.broker", "broker").body
    assert isinstance(found, dict)
    return round(number(found["store_bytes"]))


def measure(body: int, limit: int, journal_file: int, seconds: float) -> Row:
    """All three, the last with a broker of its own."""
    message = sections.header(durable=True) + sections.binary_body(bytes(body))
    with watched(limit, journal_file) as (running, watcher), Connection(running.url) as connection:
        sender = connection.sender(KEPT)
        count = fill(connection, message, sender)
        assert stored(running) <= limit
        filled = watcher.most()
        with Connection(running.url) as reading:
            exchange(connection, message, sender, reading.receiver(KEPT), seconds)
        consumed = watcher.most()
    with watched(limit, journal_file) as (running, watcher), Connection(running.url) as connection:
        sender = connection.sender(KEPT)
        half = fill(connection, message, connection.sender(OLD), sender) // 2
        with Connection(running.url) as reading:
            drain(reading, KEPT, half)
        fill(connection, message, sender)
        mixed = watcher.most()
    return Row(body, limit, journal_file, count, filled / limit, consumed / limit, mixed / limit)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The table, in Markdown."""
    yield "| message | `store_limit` | journal file | messages | filled | consumed | mixed | by the rule |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        yield (
            f"| {row.body:,} B | {format_size(row.limit)} | {format_size(row.journal_file)} |"
            f" {row.messages:,} | {row.filled:.2f} | {row.consumed:.2f} | {row.mixed:.2f} |"
            f" {row.provided:.2f} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if more was taken than the rule provides."""
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__)
    parser.add_argument("--body", type=int, action="append", help="bytes; 100, 1000 and 10000 by default")
    parser.add_argument("--store-limit", type=parse_size, action="append", help="64MB and 256MB by default")
    parser.add_argument("--journal-file-size", type=parse_size, default=parse_size("32MB"))
    parser.add_argument("--seconds", type=float, default=10.0, help="of consumption on the full store")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    rows = []
    for limit in args.store_limit or (parse_size("64MB"), parse_size("256MB")):
        for body in args.body or (100, 1000, 10_000):
            rows.append(measure(body, limit, args.journal_file_size, args.seconds))
            print(f"{rows[-1]}", file=sys.stderr)
    if args.json:
        print(json.dumps([[getattr(row, name) for name in Row.__slots__] for row in rows]))
    else:
        print("\n".join(lines(rows)))
    return int(any(row.factor > row.provided for row in rows))


if __name__ == "__main__":
    sys.exit(main())
