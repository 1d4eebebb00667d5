"""What a broker of an early version left in its data directory, and how that was made.

``formats/before-copies.tar.xz`` is of commit 53570b6, the last but many whose journal has neither copies nor
lists (format 2). It was made by ``python -m tests.store.left_behind TREE ARCHIVE``, TREE being a compiled
clone of that commit: a broker of it, with journal files of 1 MB, gets what ``QUEUES`` says from a client, in
two halves. Between them as much goes through another queue as has the first half moved to pages. Some of the
messages are taken, and some come back. Then the broker is killed (SIGKILL), and its last journal file is cut
within the record of a message that came last (``TORN``), as by a power cut.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from proton import Delivery, Message
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection, BlockingReceiver

CONFIG = """store: {journal_file_size: 1MB}
events: {enabled: false}
limits: {large_message_size: 1MB}
"""
POLICIES = """policies:
  - {match: ">", durable: true}
  - {match: paged, overflow: page, memory_limit: 64KB}
  - {match: news, kind: topic}
"""
# How many messages each address got.
QUEUES = {"plain": 60, "paged": 300, "groups": 40, "news": 30}
GROUPS = 4
# Of ``plain``: taken before the broker was killed, and delivered in vain.
TAKEN = 10
RETURNED = 3
LARGE = b"x" * 2_000_000
TORN = "torn " * 200
CONTAINER, SUBSCRIPTION = "reader", "all-news"
WAIT_S = 20.0


def message(address: str, number: int) -> Message:
    """Return a message of an address; its body can be told from every other one's."""
    body = f"{address} {number} {hashlib.sha256(f'{address}{number}'.encode()).hexdigest()} ".ljust(1000, ".")
    made = Message(body=body, durable=True, id=number)
    if address == "groups":
        made.group_id = f"g{number % GROUPS}"
        made.group_sequence = number // GROUPS
    return made


def connect(port: int, container: str | None = None) -> BlockingConnection:
    """Connect to a broker on this machine."""
    return BlockingConnection(f"127.0.0.1:{port}", timeout=WAIT_S, container_id=container)


def subscribe(connection: BlockingConnection) -> BlockingReceiver:
    """Attach to the durable subscription of the topic."""
    return connection.create_receiver("news", name=SUBSCRIPTION, credit=0, options=DurableSubscription())


def start(tree: Path, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a broker of a tree on ``folder``/data; return it with its port."""
    (folder / "broker.yaml").write_text(CONFIG)
    (folder / "policies.yaml").write_text(POLICIES)
    words = [
        *(sys.executable, "-m", "broker.cli.main", "serve", "--config", str(folder / "broker.yaml")),
        *("--policies", str(folder / "policies.yaml"), "--data", str(folder / "data")),
        *("--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stderr=log, cwd=folder, env={**os.environ, "PYTHONPATH": str(tree)})
    deadline = time.monotonic() + WAIT_S
    while "ready" not in (said := (folder / "log").read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the broker didn't start: {said}")
        time.sleep(0.01)
    found = re.search(r"listening amqp://127\.0\.0\.1:(\d+)", said)
    assert found is not None
    return process, int(found[1])


def fill(port: int) -> None:
    """Have a broker hold all of it."""
    connection = connect(port)
    reader = connect(port, CONTAINER)
    subscribe(reader).link.detach()
    reader.close()
    senders = {address: connection.create_sender(address) for address in (*QUEUES, "large")}
    for half in range(2):
        for address, count in QUEUES.items():
            for number in range(half * count // 2, (half + 1) * count // 2):
                senders[address].send(message(address, number))
        if half == 0:
            senders["large"].send(Message(body=LARGE, durable=True))
            take(connection)
            pass_through(connection)
    senders["plain"].send(Message(body=TORN, durable=True))


def take(connection: BlockingConnection) -> None:
    """Take the first messages, and give the next ones back."""
    # Each asks for one: no other is delivered.
    receiver = connection.create_receiver("plain", credit=0)
    returned = []
    for number in range(TAKEN + RETURNED):
        got = receiver.receive(timeout=WAIT_S)
        assert got.id == number
        if number < TAKEN:
            receiver.accept()
            continue
        assert receiver.fetcher is not None
        returned.append(receiver.fetcher.unsettled.popleft())
        returned[-1].local.failed = True
    # Only now, or each would come again at once.
    for delivery in returned:
        delivery.update(Delivery.MODIFIED)
        delivery.settle()


def pass_through(connection: BlockingConnection) -> None:
    """Fill journal files with what is gone again."""
    sender = connection.create_sender("through")
    receiver = connection.create_receiver("through", credit=10)
    for _ in range(80):
        sender.send(Message(body=b"z" * 50_000, durable=True))
        receiver.receive(timeout=WAIT_S)
        receiver.accept()
    # Messages move to pages on another thread.
    time.sleep(2)


def cut(data: Path) -> None:
    """Cut the last journal file within the last message."""
    for path in sorted(data.glob("journal-*"), reverse=True):
        at = path.read_bytes().rfind(TORN.encode())
        if at >= 0:
            os.truncate(path, at + len(TORN) // 2)
            return
    raise SystemExit("the last message isn't in the journal")


def main() -> None:
    """Make the archive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("archive", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process, port = start(args.tree.resolve(), folder)
        try:
            fill(port)
        finally:
            process.kill()
            process.wait()
        cut(folder / "data")
        with tarfile.open(args.archive, "w:xz", preset=9) as archive:
            archive.add(folder / "data", "data")
    print(f"{args.archive}: {args.archive.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
