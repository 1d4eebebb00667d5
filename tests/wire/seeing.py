"""What a test wants to know of a running broker, asked over its management node or read from the system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from broker.client.link import Connection, Sender
from broker.client.request import Management
from broker.codec import sections
from tests.wire.conftest import RunningBroker, wait_until

_numbers = count(1)


def queue_of(broker: RunningBroker, name: str, kind: str = "queue") -> dict[str, object]:
    """Every attribute of a queue (or topic)."""
    with Management(broker.url) as management:
        body = management.call("READ", f"org.sluice.{kind}", name).body
    assert isinstance(body, dict)
    return body


def number_of(broker: RunningBroker, name: str, attribute: str, kind: str = "queue") -> int:
    """One attribute that is a whole number."""
    value = queue_of(broker, name, kind)[attribute]
    assert isinstance(value, int), value
    return value


def numbers_of(broker: RunningBroker, attribute: str, kind: str = "queue") -> dict[str, int]:
    """One attribute of every queue (or topic), all of one moment, by name."""
    with Management(broker.url) as management:
        wanted = {"attributeNames": ["name", attribute]}
        body = management.call("QUERY", f"org.sluice.{kind}", body=wanted).body
    assert isinstance(body, dict)
    return {str(name): int(value) for name, value in body["results"]}


def await_number(broker: RunningBroker, name: str, attribute: str, wanted: int, kind: str = "queue") -> None:
    """Until an attribute has a value."""
    wait_until(
        lambda: number_of(broker, name, attribute, kind) == wanted,
        30,
        f"{attribute} of {name} to be {wanted}",
    )


def credit_comes(broker: RunningBroker, connection: Connection, sender: Sender, seconds: float = 1.5) -> bool:
    """Whether a sender has credit, or gets some while the broker turns for so long.

    The time is counted in answers: a broker that stands still meanwhile hasn't refused any.
    """
    if connection.wait_until(sender.may_send, 0.1):
        return True
    with Management(broker.url) as management:
        for _ in range(round(seconds * 10)):
            management.call("READ", "org.sluice.broker", "broker")
            if connection.wait_until(sender.may_send, 0.1):
                return True
    return False


def update(broker: RunningBroker, name: str, kind: str = "queue", **settings: object) -> None:
    """Change settings at runtime."""
    with Management(broker.url) as management:
        management.call("UPDATE", f"org.sluice.{kind}", name, settings)


@contextmanager
def good_neighbours(broker: RunningBroker) -> Iterator[None]:
    """A pair of clients that works before and after whatever happens inside, on the same connections."""
    name = f"neighbours{next(_numbers)}"
    with Connection(broker.url) as one, Connection(broker.url) as other:
        sender, receiver = one.sender(name), other.receiver(name)
        for number in range(2):
            bodies = [sections.text_body(f"{number}.{i}") for i in range(50)]
            for body in bodies:
                sender.send(body, 20)
            sender.flush(20)
            got: list[bytes] = []
            while len(got) < len(bodies):
                got += receiver.take(len(bodies), 20)
            assert got == bodies
            if number == 0:
                yield
    assert "Traceback" not in broker.log, broker.log


def sockets_in(state: str, port: int) -> int:
    """How many sockets on a local port are in a state of /proc/net/tcp; CLOSE_WAIT is 08."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if int(columns[1].rpartition(":")[2], 16) == port and columns[3] == state:
            found += 1
    return found


def await_no_half_closed(broker: RunningBroker) -> None:
    """Until no socket of the broker's is left that its peer has closed and it has not."""
    wait_until(lambda: sockets_in("08", broker.port) == 0, 30, "no socket in CLOSE_WAIT")


def memory_kb(broker: RunningBroker) -> int:
    """The broker's resident memory."""
    broker.settle()
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")
