"""A million messages that wait for their time: the memory of each, and how late they are ready.

    python -m bench.delayed [--messages N] [--seconds S] [--wave N]

In one process, without sockets: N messages of 100 bytes wait in an engine's queue, due evenly over S seconds,
and a consumer takes each as it comes. The turns run by the engine's own deadlines, as the reactor's do. With
``--wave`` so many more are due in one instant.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

from proton import Message, symbol

from broker.codec import message
from broker.config.flow import BrokerDefaults
from broker.config.thresholds import resolve
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.queues.dispatch import Consumer
from broker.queues.queue import Entry

BODY = b"." * 100
# The annotation's number is written into the encoded message: encoding a million anew takes a minute.
MARK = 0x0102030405060708


class Taker(Consumer):
    """A consumer that settles at once and notes how late each message is, in nanoseconds."""

    def __init__(self, engine: Engine, node: Node) -> None:
        Consumer.__init__(self)
        self.engine = engine
        self.node = node
        self.late_ns: list[int] = []

    def capacity(self) -> int:
        """Take whatever there is."""
        return 1000

    def send(self, entry: Entry) -> None:
        """Take a message; its time is the last eight bytes of its annotations."""
        due_ms = message.delivery_time_ms(entry.data, 0)
        due_ns = due_ms * 1_000_000 - self.engine.turn.epoch_ns
        self.late_ns.append(time.monotonic_ns() - due_ns)
        self.engine.settlement.acknowledge(self.node, entry)


def resident_bytes() -> int:
    """Return the memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system doesn't say")


def main() -> None:
    """Print what one run measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--wave", type=int, default=0)
    args = parser.parse_args()
    engine = Engine()
    engine.turn.epoch_ns = time.time_ns() - time.monotonic_ns()
    engine.begin_turn(time.monotonic_ns())
    node = engine.lifecycle.create("orders", resolve({"max_size": "10 GB"}, BrokerDefaults()))
    pattern = bytes(Message(body=BODY, annotations={symbol("x-opt-delivery-time"): MARK}).encode())
    before, _, after = pattern.partition(MARK.to_bytes(8, "big"))
    bits = message.scan(pattern)
    # Late enough that all are there before the first is due.
    first_ms = engine.turn.wall_ms() + max(args.messages // 20, 1000)
    gc.collect()
    held = resident_bytes()
    begun = time.monotonic()
    for number in range(args.messages + args.wave):
        spread = number * args.seconds * 1000 / args.messages if number < args.messages else 500.0
        due_ms = first_ms + int(spread)
        engine.intake.put(node, before + due_ms.to_bytes(8, "big") + after, bits)
    took_s = time.monotonic() - begun
    count = node.gate.depth_msgs
    each = (resident_bytes() - held) / count
    print(
        f"{count:,} messages of {len(pattern)} B wait,"
        f" put in {took_s:.2f} s ({took_s / count * 1e6:.2f} µs each)"
    )
    print(f"memory each: {each:.0f} B, {each - len(pattern):.0f} B beyond the message's {len(pattern)} B")
    taker = Taker(engine, node)
    engine.delivery.add_consumer(node, taker)
    engine.end_turn()
    used = time.process_time()
    longest_ns = 0
    while len(taker.late_ns) < count:
        wait_ns = engine.next_deadline() - time.monotonic_ns()
        if wait_ns > 0:
            # The reactor waits in whole milliseconds.
            time.sleep(-(-wait_ns // 1_000_000) / 1000)
        turn_ns = time.monotonic_ns()
        engine.begin_turn(turn_ns)
        engine.end_turn()
        longest_ns = max(longest_ns, time.monotonic_ns() - turn_ns)
    used = time.process_time() - used
    late = sorted(taker.late_ns)
    parts = ", ".join(f"{name} {late[int(part * (count - 1))] / 1e6:.2f} ms" for name, part in PARTS)
    print(f"late by: {parts}; earliest {late[0] / 1e6:+.3f} ms")
    print(f"longest turn {longest_ns / 1e6:.1f} ms; {used / count * 1e6:.2f} µs of processor time a message")


PARTS = (("median", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0))

if __name__ == "__main__":
    main()
