"""Many producers of one process, each as fast as its credit lets it, with sizes of any distribution.

``python -m bench.producers URL ADDRESS LINKS CONNECTIONS SIZES SECONDS [presettled]`` prints a JSON object:
what each link had accepted (pre-settled: sent), the bytes sent and the largest message. ``%d`` in the
address is the link's number.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from broker.client.link import Connection, Sender
from broker.codec.sections import DATA, section

LARGEST = 60_000
SMALLEST = 64
# A tail that heavy has a mean of three times its smallest value and no variance (Pareto, alpha 1.5).
ALPHA = 1.5
# Sends of one link before another has its turn.
RUN = 16


@dataclass(frozen=True, slots=True)
class Produced:
    """One run: messages by link, and the encoded bytes of all of them."""

    counts: list[int]
    nbytes: int
    largest: int


def produce(
    url: str, address: str, links: int, connections: int, sizes: str, seconds: float, *, presettled: bool
) -> Produced:
    """Runs ``python -m bench.producers`` to its end."""
    words = [url, address, str(links), str(connections), sizes, str(seconds)]
    command = [sys.executable, "-m", "bench.producers", *words, *(["presettled"] if presettled else [])]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 120)
    return Produced(**json.loads(ended.stdout))


def numbered(address: str, number: int) -> str:
    """The address of the link of that number."""
    return address.replace("%d", str(number))


def bodies(sizes: str) -> Iterator[bytes]:
    """Encoded messages, for ever: of so many bytes, or ``heavy``, whose sizes have a heavy tail."""
    random.seed(1)
    fixed = 0 if sizes == "heavy" else int(sizes)
    ready: dict[int, bytes] = {}
    while True:
        size = fixed or min(int(SMALLEST * random.paretovariate(ALPHA)), LARGEST)
        message = ready.get(size)
        if message is None:
            head = section(DATA) + b"\xb0" + size.to_bytes(4, "big")
            message = ready[size] = head + bytes(size)
        yield message


def run(
    url: str, address: str, links: int, connections: int, sizes: str, seconds: float, presettled: bool
) -> Produced:
    """Send for so long; what is out then is waited for."""
    opened = [Connection(url, timeout_s=60) for _ in range(connections)]
    by_connection: list[list[Sender]] = [[] for _ in opened]
    for number in range(links):
        place = number % connections
        by_connection[place].append(opened[place].sender(numbered(address, number), presettled=presettled))
    source, nbytes, largest = bodies(sizes), 0, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for connection, senders in zip(opened, by_connection, strict=True):
            for sender in senders:
                for _ in range(RUN):
                    if not sender.may_send():
                        break
                    message = next(source)
                    sender.send(message)
                    nbytes += len(message)
                    largest = max(largest, len(message))
            connection.pump()
    senders = [sender for several in by_connection for sender in several]
    counts = [sender.sent if presettled else sender.accepted for sender in senders]
    for connection in opened:
        connection.close()
    return Produced(counts, nbytes, largest)


def main() -> int:
    """The command line of the docstring."""
    url, address, links, connections, sizes, seconds, *rest = sys.argv[1:]
    done = run(url, address, int(links), int(connections), sizes, float(seconds), rest == ["presettled"])
    print(json.dumps({"counts": done.counts, "nbytes": done.nbytes, "largest": done.largest}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
