"""Many consumers of one process, each as fast as it can, until it is terminated.

``python -m bench.consumers URL ADDRESS LINKS CONNECTIONS CREDIT`` prints ``ready`` when every link is
attached. ``%d`` in the address is the link's number.
"""

from __future__ import annotations

import select
import sys

from bench.producers import numbered
from broker.client.link import Connection, Receiver

IDLE_S = 0.02


def run(url: str, address: str, links: int, connections: int, credit: int) -> None:
    """Take and settle, for ever."""
    opened = [Connection(url, timeout_s=60) for _ in range(connections)]
    by_connection: list[list[Receiver]] = [[] for _ in opened]
    poll = select.epoll()
    at: dict[int, int] = {}
    for number in range(links):
        place = number % connections
        receiver = opened[place].receiver(numbered(address, number), credit=credit)
        by_connection[place].append(receiver)
    for place, connection in enumerate(opened):
        poll.register(connection.fileno(), select.EPOLLIN)
        at[connection.fileno()] = place
    print("ready", flush=True)
    # Some may have come with the answers to what was attached later.
    for connection, receivers in zip(opened, by_connection, strict=True):
        serve(connection, receivers, credit)
    while True:
        for fd, _ in poll.poll(IDLE_S):
            serve(opened[at[fd]], by_connection[at[fd]], credit)


def serve(connection: Connection, receivers: list[Receiver], credit: int) -> None:
    """Take all there is. What settles it is written by a pump, which reads as well."""
    connection.pump()
    while taken(receivers, credit):
        connection.pump()


def taken(receivers: list[Receiver], credit: int) -> bool:
    """Take what is there; whether there was any."""
    found = False
    for receiver in receivers:
        while receiver.has_message():
            receiver.take(credit)
            found = True
    return found


def main() -> int:
    """The command line of the docstring."""
    url, address, links, connections, credit = sys.argv[1:]
    run(url, address, int(links), int(connections), int(credit))
    return 0


if __name__ == "__main__":
    sys.exit(main())
