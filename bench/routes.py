"""How fast a route passes messages on: two brokers on this machine, one queue.

python -m bench.routes [COUNT]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from broker.client.link import Connection
from tests.wire.conftest import RunningBroker

BODY = b"\x00\x53\x75\xa0\x64" + bytes(100)


def main() -> None:
    """Fill the queue here, then time how long it takes to arrive there."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        there = RunningBroker(Path(folder) / "there", "", "", ())
        given = {"name": "bench", "url": there.url, "address": "orders"}
        here = RunningBroker(Path(folder) / "here", "routes:\n  - " + json.dumps(given) + "\n", "", ())
        try:
            with Connection(there.url) as out, Connection(here.url) as into:
                receiver = out.receiver("orders", credit=5000)
                sender = into.sender("orders", window=5000)
                begun = time.monotonic()
                arrived = 0
                for i in range(count):
                    sender.send(BODY)
                    if i % 500 == 0:
                        out.pump()
                        while receiver.has_message():
                            arrived += len(receiver.take(5000))
                sender.flush(60)
                while arrived < count:
                    arrived += len(receiver.take(5000, 10))
                took = time.monotonic() - begun
                print(f"{count} messages of 100 bytes in {took:.2f} s: {count / took:,.0f} msg/s end to end")
        finally:
            here.stop()
            there.stop()


if __name__ == "__main__":
    main()
