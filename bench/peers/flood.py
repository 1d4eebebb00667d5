"""Producers that send as long as anything moves, then what the queue holds: the depth by the wire alone.

``python -m bench.peers.flood URL ADDRESS PRODUCERS COUNT SECONDS [presettled]`` prints a JSON object. Nobody
consumes meanwhile. The producers are gone before the queue is drained, so what a broker holds back on
their connections isn't counted as kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from bench.contenders import BenchError
from broker.client.errors import ClientError
from broker.client.link import Connection, Sender
from broker.codec.sections import binary_body

BODY = binary_body(bytes(100))
RUN = 16  # sends of one link before another has its turn
QUIET_S = 1.5  # nothing moved for so long: every producer is stopped
QUIET_LOOKS = 200  # and was seen not to so often: who stands still sees nothing
LEFT_S = 1.0  # the queue gave nothing for so long: it is empty
DRAIN_S = 10.0
CLOSE_S = 15.0


@dataclass(frozen=True, slots=True)
class Flooded:
    """Messages sent, accepted and refused, and those found in the queue afterwards."""

    sent: int
    accepted: int
    refused: int
    kept: int


def flooded(url: str, address: str, producers: int, count: int, seconds: float, *, pre: bool) -> Flooded:
    """Runs it in a process of its own, which is ended when it takes too long."""
    words = [url, address, str(producers), str(count), str(seconds), *(["presettled"] if pre else [])]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "bench.peers.flood", *words],
            capture_output=True, text=True, timeout=seconds + DRAIN_S + 2 * CLOSE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BenchError("the flood took too long") from error
    if ended.returncode:
        raise BenchError((ended.stderr.strip().splitlines() or ["the flood failed"])[-1])
    return Flooded(**json.loads(ended.stdout))


def flood(url: str, address: str, producers: int, count: int, seconds: float, *, pre: bool) -> list[Sender]:
    """The senders, when nothing moved any more; the connections are closed."""
    opened = [Connection(url) for _ in range(producers)]
    senders = [connection.sender(address, presettled=pre) for connection in opened]
    began = moved_s = time.monotonic()
    before, quiet = -1, 0
    while (now_s := time.monotonic()) < began + seconds and (
        now_s < moved_s + QUIET_S or quiet < QUIET_LOOKS
    ):
        for connection, sender in zip(opened, senders, strict=True):
            for _ in range(RUN):
                if sender.sent >= count or not sender.may_send():
                    break
                sender.send(BODY)
            connection.pump()
        moved = sum(sender.sent + sender.settled for sender in senders)
        if moved == before:
            quiet += 1
            time.sleep(0.002)
        else:
            before, moved_s, quiet = moved, now_s, 0
    for connection in opened:
        try:
            connection.timeout_s = 1.0
            connection.close()
        except ClientError:  # a broker that holds a connection back answers no close either
            continue
    return senders


def drained(url: str, address: str) -> int:
    """Messages the queue still gives."""
    found, until = 0, time.monotonic() + DRAIN_S
    with Connection(url) as connection:
        receiver = connection.receiver(address)
        while time.monotonic() < until and (taken := receiver.take(500, LEFT_S)):
            found += len(taken)
    return found


def main() -> int:
    """The command line of the docstring."""
    url, address, producers, count, seconds, *rest = sys.argv[1:]
    pre = rest == ["presettled"]
    try:
        senders = flood(url, address, int(producers), int(count), float(seconds), pre=pre)
        kept = drained(url, address)
    except ClientError as error:
        print(error, file=sys.stderr)
        return 1
    accepted = sum(sender.accepted for sender in senders)
    refused = sum(sender.rejected + sender.released + sender.modified for sender in senders)
    print(json.dumps(asdict(Flooded(sum(sender.sent for sender in senders), accepted, refused, kept))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
