"""How many transactions one user may have open on all connections, and how much these may hold."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from proton import Message

from tests.wire.conftest import StartBroker, wait_until
from tests.wire.secured import Secured
from tests.wire.seeing import await_number, number_of
from tests.wire.test_connection_limits import refusals
from tests.wire.test_transactions import Controller

pytestmark = pytest.mark.wire

RULES = "rules:\n  - {allow: all}\n"
MOST, MOST_BYTES = 3, 64 * 1024
LIMITS = f"limits: {{max_transactions_per_user: {MOST}, max_transaction_size_per_user: {MOST_BYTES}}}\n"
BODY = "x" * 5000

# An application that is killed while its transactions are open.
LOST = """
import sys
from tests.wire.test_transactions import Controller

lost = Controller(sys.argv[1])
for _ in range(int(sys.argv[2])):
    lost.declare()
print("declared", flush=True)
lost.run(60)
"""


class Client(Controller):
    """One that hears why a message or a declaration was refused."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.refused: list[str] = []
        self.failed = 0

    def on_rejected(self, event: object) -> None:
        self.refused.append(str(event.delivery.remote.condition))  # type: ignore[attr-defined]

    def on_transaction_declare_failed(self, event: object) -> None:
        self.failed += 1

    def may_declare(self) -> bool:
        before = len(self.open), self.failed
        self.container.declare_transaction(self.connection, handler=self)
        self.until(lambda: (len(self.open), self.failed) != before, "an answer")
        return self.failed == before[1]

    def posted(self, transaction: object, sender: object, msgs: int) -> int:
        """Post so many messages and return how many of them were taken."""
        before, told = len(self.refused), []
        for _ in range(msgs):
            delivery = transaction.send(sender, Message(body=BODY))  # type: ignore[attr-defined]
            told.append(delivery)
        self.until(lambda: all(each.remote_state for each in told), "outcomes")
        self.run(0.05)
        return msgs - (len(self.refused) - before)


@pytest.fixture
def secured(start_broker: StartBroker, tmp_path: Path) -> Secured:
    return Secured(start_broker, tmp_path, RULES, {"ann": "", "bob": ""}, LIMITS)


@pytest.fixture
def connect(secured: Secured) -> Iterator[Callable[[str], Client]]:
    with ExitStack() as stack:

        def made(user: str) -> Client:
            client = Client(secured.url(user))
            stack.callback(client.close)
            return client

        yield made


def test_a_user_has_no_more_than_that_on_all_connections(
    secured: Secured, connect: Callable[[str], Client]
) -> None:
    one, two, other = connect("ann"), connect("ann"), connect("bob")
    first, second = one.declare(), one.declare()
    two.declare()
    assert not one.may_declare()
    assert not two.may_declare()
    assert refusals(secured.broker, "max_transactions_per_user") == 2
    for _ in range(MOST):
        assert other.may_declare(), "another user has room of its own"
    one.commit(first)
    assert two.may_declare(), "a commit gives room back"
    assert not two.may_declare()
    one.abort(second)
    assert two.may_declare(), "a rollback gives room back"


def test_a_lost_connection_gives_the_room_back(secured: Secured, connect: Callable[[str], Client]) -> None:
    stays = connect("ann")
    lost = subprocess.Popen(
        [sys.executable, "-c", LOST, secured.url("ann"), str(MOST)], stdout=subprocess.PIPE
    )
    assert lost.stdout is not None
    assert lost.stdout.readline() == b"declared\n"
    assert not stays.may_declare()
    lost.kill()
    assert lost.wait(30) == -signal.SIGKILL
    lost.stdout.close()
    wait_until(stays.may_declare, 10, "the room of the connection that was lost")


def test_they_hold_no_more_bytes_than_that_together(
    secured: Secured, connect: Callable[[str], Client]
) -> None:
    one, two, other = connect("ann"), connect("ann"), connect("bob")
    first, second = one.declare(), two.declare()
    out, also = one.sender("orders"), two.sender("orders")
    taken = one.posted(first, out, 8) + two.posted(second, also, 8)
    assert 8 < taken < 16
    assert number_of(secured.broker, "orders", "uncommitted_msgs") == taken
    assert number_of(secured.broker, "orders", "uncommitted_bytes") <= MOST_BYTES
    assert number_of(secured.broker, "orders", "open_transactions") == 2
    assert "limits.max_transaction_size_per_user" in two.refused[0], two.refused
    assert "ann" in two.refused[0]
    assert refusals(secured.broker, "max_transaction_size_per_user") == 16 - taken
    mine, elsewhere = other.declare(), other.sender("orders")
    assert other.posted(mine, elsewhere, 8) == 8, "another user has room of its own"
    one.commit(first)
    again = one.declare()
    assert one.posted(again, out, 4) == 4, "a commit gives room back"
    two.abort(second)
    await_number(secured.broker, "orders", "uncommitted_msgs", 12)
    assert one.posted(again, out, 6) == 6, "a rollback gives room back"


def test_other_bounds_hold_once_they_are_read_again(
    secured: Secured, connect: Callable[[str], Client]
) -> None:
    client = connect("ann")
    for _ in range(MOST):
        client.declare()
    assert not client.may_declare()
    broker = secured.broker
    text = broker.config_file.read_text()
    broker.config_file.write_text(text.replace(f"per_user: {MOST},", f"per_user: {MOST + 1},"))
    broker.signal(signal.SIGHUP)
    wait_until(client.may_declare, 10, "the new bound")
    assert not client.may_declare()
