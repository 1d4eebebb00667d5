"""Replies of a cell's management, and of clients, to addresses in another cell than their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, SSLDomain
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SyncRequestResponse

from broker.client.request import Management
from tests.wire.cells import ARGS, CELLS, PAIRS, cells, let_stand_still, names_in, settled_in, stopped
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.people import PASSWORDS, settings_for
from tests.wire.tlsworld import Pki, url_of

__all__ = ["cells"]

RULES = """rules:
  - allow: [connect, manage-read]
    groups: readers
  - allow: create
    groups: readers
    addresses: "$temporary"
"""

TLS = (*ARGS, "--listen", "amqps://127.0.0.1:0")
QUEUES = ["name", "depth_msgs"]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority, and the broker's certificate."""
    return Pki.at(tmp_path_factory.mktemp("replies") / "certs")


@pytest.fixture(scope="module")
def secure(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells, with a listener for TLS."""
    broker = RunningBroker(tmp_path_factory.mktemp("secure"), pki.section(), "", TLS)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


def connected(broker: RunningBroker, pki: Pki) -> BlockingConnection:
    """A connection with TLS, which stays in whichever cell accepted it."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(pki.ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return BlockingConnection(url_of(broker), timeout=10, ssl_domain=domain)


class To(LinkOption):
    """A receiver's target, by which the management node knows it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def apply(self, link: Any) -> None:
        link.target.address = self.address


def query(reply_to: str | None = None) -> Message:
    """A request for a cell's queues."""
    asked = {"operation": "QUERY", "name": "self", "entityType": "org.sluice.queue"}
    return Message({"attributeNames": QUEUES}, properties=asked, reply_to=reply_to)


def browse(name: str, reply_to: str | None = None) -> Message:
    """A request to see the messages of a queue."""
    asked = {"operation": "browse", "type": "org.sluice.queue", "name": name}
    return Message(properties=asked, reply_to=reply_to)


def answered(message: Message) -> tuple[int, int]:
    """The status of an answer, and the cell that gave it."""
    properties: Any = message.properties
    return int(properties["statusCode"]), int(properties["cell"])


def management_of(cell: int) -> str:
    """The address of a cell's management."""
    return f"$cell/{cell}/$management"


@pytest.mark.parametrize("here", range(CELLS))
def test_every_cell_s_management_answers_a_client_of_any(cells: RunningBroker, here: int) -> None:
    with settled_in(cells, here) as connection:
        for cell in (*range(CELLS), *range(CELLS)):
            asking = SyncRequestResponse(connection, management_of(cell))
            for _ in range(3):
                assert answered(asking.call(query())) == (200, cell)
            asking.receiver.close()  # type: ignore[no-untyped-call]
            asking.sender.close()  # type: ignore[no-untyped-call]


def test_every_cell_s_management_answers_over_tls(secure: RunningBroker, pki: Pki) -> None:
    for _ in range(4):
        connection = connected(secure, pki)
        for cell in range(CELLS):
            assert answered(SyncRequestResponse(connection, management_of(cell)).call(query())) == (200, cell)
        connection.close()


def test_a_page_of_half_a_megabyte_comes_whole(cells: RunningBroker) -> None:
    with settled_in(cells, 0) as connection:
        [name] = names_in(1, CELLS, 1, "browsed")
        sender = connection.create_sender(name)
        for _ in range(12):
            sender.send(Message("x" * 100_000))
        asking = SyncRequestResponse(connection, management_of(1))
        answer = asking.call(browse(name))
        assert answered(answer) == (200, 1)
        assert len(answer.encode()) > 400_000


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_an_answer_finds_a_receiver_on_management(cells: RunningBroker, here: int, there: int) -> None:
    with settled_in(cells, here) as connection:
        replies = connection.create_receiver("$management", credit=10, options=To("my-replies"))
        connection.create_sender(management_of(there)).send(query(reply_to="my-replies"))
        assert answered(replies.receive(timeout=10)) == (200, there)


@pytest.mark.parametrize(("here", "there"), PAIRS)
@pytest.mark.parametrize("third", range(CELLS))
def test_an_answer_finds_a_queue_in_any_cell(cells: RunningBroker, here: int, there: int, third: int) -> None:
    [name] = names_in(third, CELLS, 1, f"answers{here}{there}")
    with settled_in(cells, here) as connection:
        replies = connection.create_receiver(name, credit=10)
        sender = connection.create_sender(management_of(there))
        for address in (name, f"$cell/{third}/{name}"):
            sender.send(query(reply_to=address))
            assert answered(replies.receive(timeout=10)) == (200, there)
            replies.accept()


def test_an_answer_finds_a_temporary_queue_of_another_client_s(cells: RunningBroker) -> None:
    with settled_in(cells, 2) as other, settled_in(cells, 0) as connection:
        replies = other.create_receiver(None, dynamic=True, credit=10)
        for cell in range(CELLS):
            sender = connection.create_sender(management_of(cell))
            sender.send(query(reply_to=replies.link.remote_source.address))
            assert answered(replies.receive(timeout=10)) == (200, cell)


def test_answers_that_nobody_reads_are_dropped_and_those_behind_come(cells: RunningBroker) -> None:
    with settled_in(cells, 0) as connection:
        unread = connection.create_receiver(None, dynamic=True, credit=0, name="unread")
        asking = SyncRequestResponse(connection, management_of(1))
        [name] = names_in(1, CELLS, 1, "pages")
        fill = connection.create_sender(name)
        for _ in range(4):
            fill.send(Message("x" * 200_000))
        for _ in range(60):
            asking.sender.send(browse(name, unread.link.remote_source.address))
        cells.wait_for_log("was dropped: those before it are not read")
        assert answered(asking.call(query())) == (200, 1)


@pytest.mark.parametrize("relays", [False, True], ids=["link", "relay"])
def test_clients_with_tls_in_different_cells_answer_each_other(
    secure: RunningBroker, pki: Pki, relays: bool
) -> None:
    for number in range(4):
        client, server = connected(secure, pki), connected(secure, pki)
        service = f"service.{relays}.{number}"
        requests = server.create_receiver(service, credit=1)
        replies = client.create_receiver(None, dynamic=True, credit=1)
        reply_to = replies.link.remote_source.address
        client.create_sender(service).send(Message("ask", reply_to=reply_to))
        request = requests.receive(timeout=10)
        requests.accept()
        sender = server.create_sender(None if relays else request.reply_to, name=f"answers {number}")
        sender.send(Message("answer", address=request.reply_to))
        assert replies.receive(timeout=10).body == "answer"
        replies.accept()
        client.close()
        server.close()


def test_a_user_who_may_make_no_more_nodes_has_answers_of_all_cells(start_broker: StartBroker) -> None:
    broker = start_broker("limits:\n  max_nodes_per_user: 1\n", args=ARGS)
    with settled_in(broker, 0) as connection, settled_in(broker, 1) as one, settled_in(broker, 2) as two:
        one.create_receiver(None, dynamic=True)
        two.create_receiver(None, dynamic=True)
        with pytest.raises(LinkDetached, match="you have made 1 nodes"):
            two.create_receiver(None, dynamic=True, name="another")
        for cell in range(CELLS):
            asking = SyncRequestResponse(connection, management_of(cell))
            assert answered(asking.call(query())) == (200, cell)
            asking.receiver.close()  # type: ignore[no-untyped-call]


def test_answers_for_a_cell_that_stands_still_are_bounded_and_dropped_beyond(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_stand_still(monkeypatch)
    broker = start_broker(args=ARGS)
    [pages], [answers] = names_in(0, CELLS, 1, "pages"), names_in(2, CELLS, 1, "answers")
    with settled_in(broker, 0) as connection:
        fill = connection.create_sender(pages)
        for _ in range(10):
            fill.send(Message("x" * 90_000))
        replies = connection.create_receiver(answers, credit=100)
        asking = connection.create_sender("$management", name="asking")
        with stopped(broker, 2):
            for _ in range(60):
                asking.send(browse(pages, answers))
            broker.wait_for_log("was dropped: those before it are not read")
        first: Any = replies.receive(timeout=20).body
        assert len(first["messages"]) == 5
        # There is room again.
        for _ in range(60):
            asking.send(query(answers))
        while True:
            body: Any = replies.receive(timeout=20).body
            replies.accept()
            if "attributeNames" in body:
                break


def test_a_node_of_answers_that_is_deleted_is_made_anew(cells: RunningBroker) -> None:
    with settled_in(cells, 0) as connection, Management(cells.url, cell=1) as operator:
        before = temporary_of(operator)
        asking = SyncRequestResponse(connection, management_of(1))
        assert answered(asking.call(query())) == (200, 1)
        [made] = temporary_of(operator) - before
        operator.call("DELETE", "org.sluice.queue", made)
        asking.sender.close()  # type: ignore[no-untyped-call]
        asking.receiver.close()  # type: ignore[no-untyped-call]
        cells.wait_for_log("cell 1 has no node for management replies any more")
        asking = SyncRequestResponse(connection, management_of(1))
        assert answered(asking.call(query())) == (200, 1)


def temporary_of(operator: Management) -> set[str]:
    """Return the names of a cell's temporary queues."""
    body: Any = operator.call("QUERY", "org.sluice.queue", body={"attributeNames": ["name"]}).body
    return {name for (name,) in body["results"] if name.startswith("$temporary/")}


def test_one_who_may_only_look_has_answers_of_all_cells(start_broker: StartBroker, tmp_path: Path) -> None:
    """The right to send to the node of the answers isn't asked for: it is the client's own."""
    config = settings_for(tmp_path / "secured", rules=RULES, more="  plain_without_tls: true\n")
    broker = start_broker(config, args=ARGS)
    password = PASSWORDS["rita"].replace(" ", "%20")
    for _ in range(3):
        connection = BlockingConnection(f"amqp://rita:{password}@127.0.0.1:{broker.port}", timeout=10)
        # It stays where it was accepted.
        connection.create_receiver(None, dynamic=True)
        for cell in range(CELLS):
            asking = SyncRequestResponse(connection, management_of(cell))
            assert answered(asking.call(query())) == (200, cell)
        connection.close()
