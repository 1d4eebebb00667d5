"""Members with several cells: any of them reaches all, and cells go to others when one fails."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from broker.client.request import Management
from broker.security.exchange import ListenerTrust
from broker.security.identity import Identity
from broker.security.users import FEWEST, User, make_verifier
from broker.security.usersfile import changing
from broker.server.cells import messages
from broker.server.cluster import header
from broker.server.cluster.header import NEIGHBOURS, RelayedClient
from tests.cluster.applications import bodies, send, take
from tests.cluster.cell_rounds import (
    FAULTS,
    POLICIES,
    Crowd,
    Fault,
    Outcome,
    cut_off_member,
    kill_member,
    one_round,
    stop_member,
)
from tests.cluster.conftest import skip_without_servers
from tests.cluster.spread import CELLS, SECRET, CellsCluster, CellsMember, cells_cluster, queue_in
from tests.cluster.world import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.wire]
TIMES = "  ttl: 2s\n  margin: 400ms\n  mark: 300ms\n  rebalance: 2s\n"
PASSWORD = "open-sesame"
RULES = """rules:
  - {allow: all, users: [anonymous]}
  - {allow: connect}
  - {allow: all, users: [alice], addresses: ["alices.>"]}
"""
PLACED = "policies:\n  - {match: '*.>', kind: queue, durable: true}\n"
LARGE = bytes(range(256)) * 8192


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellsCluster]:
    """Four cells over three members, which all tests here share."""
    skip_without_servers()
    folder = tmp_path_factory.mktemp("spread")
    users = folder / "users"
    with changing(users) as found:
        for name in ("alice", "bob"):
            verifier = make_verifier(PASSWORD, "SCRAM-SHA-256", FEWEST)
            found.users[name] = User(name, {"SCRAM-SHA-256": verifier}, frozenset())
    acl = folder / "acl.yaml"
    acl.write_text(RULES)
    settings = f"security: {{users: {users}, plain_without_tls: true, allow_anonymous: true, acl: {acl}}}\n"
    with cells_cluster(folder, extra=TIMES, policies=POLICIES, settings=settings) as made:
        made.wait_for_standbys()
        yield made
        faults = [line for each in made.members for line in each.log.splitlines() if "Traceback" in line]
        assert not faults, made.logs()


@contextmanager
def connected_to(member: CellsMember, user: str = "") -> Iterator[BlockingConnection]:
    """A client of a member."""
    login = f"{user}:{PASSWORD}@" if user else ""
    with closing(BlockingConnection(f"amqp://{login}127.0.0.1:{member.amqp}", timeout=30)) as made:
        yield made


def page(port: int, path: str) -> str:
    """Return a page of text."""
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: bytes = answer.read()
    return text.decode()


def settled(made: CellsCluster) -> dict[int, str]:
    """Have all members there, and cells spread over them; return their owners."""
    made.wait_for_standbys()
    return made.wait_for_spread()


# --- any member reaches all


def test_cells_are_spread_over_members_and_each_member_reaches_all(made: CellsCluster) -> None:
    settled(made)
    assert sorted(made.loads()) == [1, 1, 2]
    names = [queue_in(cell, begin="reached") for cell in range(CELLS)]
    for member in made.members:
        with connected_to(member) as client:
            for name in names:
                client.create_sender(name).send(Message(body=f"{name} by {member.name}", durable=True))
    for name in names:
        found = [str(take(member.amqp, name, 1)[0].body) for member in made.members]
        assert sorted(found) == sorted(f"{name} by {member.name}" for member in made.members)


def test_large_messages_and_management_reach_any_cell_from_any_member(made: CellsCluster) -> None:
    owners = settled(made)
    name = queue_in(0, begin="large")
    [other, *_] = [each for each in made.members if each.name != owners[0]]
    send(other.amqp, name, [LARGE])
    assert bodies(take(other.amqp, name, 1)) == [LARGE]
    for cell in range(CELLS):
        with Management(other.url, cell=cell) as management:
            told = management.call("READ", "org.sluice.broker", body={}).body
        assert isinstance(told, dict)
        assert told["cluster_owner"] == owners[cell]


def test_rules_of_a_user_hold_in_cells_of_other_members(made: CellsCluster) -> None:
    settled(made)
    for member in made.members:
        for cell in range(CELLS):
            with connected_to(member, "alice") as client:
                own = queue_in(cell, begin="alices")
                client.create_sender(own).send(Message(body=member.name, durable=True))
                with pytest.raises(LinkDetached, match="unauthorized"):
                    client.create_sender(queue_in(cell, begin="bobs"))


def test_pages_of_any_member_tell_of_all_cells(made: CellsCluster) -> None:
    owners = settled(made)
    for member in made.members:
        status = member.api("/api/v1/cluster")
        assert {each["number"]: each["owner"] for each in status["cells"]} == owners
        for cell in range(CELLS):
            assert member.api(f"/api/v1/cluster?cell={cell}")["cell"] == f"main-{cell}"
        metrics = page(member.http, "/metrics")
        for cell in range(CELLS):
            assert f'sluice_cluster_owner{{cell="{cell}",log="main-{cell}"}} 1' in metrics
        assert page(member.http, "/readyz") == "ready\n"
        assert {each["cell"] for each in member.api("/api/v1/broker")["cells"]} == set(range(CELLS))
    told = run_sluice("cluster", "status", "--http", f"http://127.0.0.1:{made.members[0].http}")
    assert [line.split()[:3] for line in told.splitlines() if "main-" in line][1:] == [
        [str(cell), f"main-{cell}", owner] for cell, owner in owners.items()
    ]


def test_a_queue_stays_in_its_cell_and_is_told_why(made: CellsCluster) -> None:
    settled(made)
    name = queue_in(1, begin="staying")
    send(made.members[0].amqp, name, ["here"])
    told = run_sluice("cluster", "move", name, "2", "--broker", made.members[0].url, status=1)
    assert "in a cluster queues don't move between cells yet" in told


# --- nobody else is believed


def spoken(made: CellsCluster, secret: str, said: bytes, vouched: bytes) -> bytes:
    """Say something to cell 0's owner at its port for members, as another one would; return its answer."""
    owner = made.member(made.wait_for_owners()[0])
    shown = RelayedClient("main-0", "x", NEIGHBOURS, "", 0, "", 0, header.digest_of(vouched))
    signed = header.signed(shown, secret.encode(), time.time_ns() // 1_000_000, os.urandom(16))
    heard = b""
    with socket.create_connection(("127.0.0.1", owner.member_port), 10) as sock:
        sock.sendall(signed + said)
        sock.settimeout(5)
        try:
            while data := sock.recv(1000):
                heard += data
                if len(heard) >= header.ANSWER_BYTES + 8:
                    break
        except (ConnectionError, TimeoutError):
            return heard
    return heard


def on_behalf(user: str) -> bytes:
    """Return what a cell says first that passes links of a user on."""
    identity = Identity(user, frozenset(), "PLAIN")
    fields = messages.client_fields("10.0.0.9:5", ListenerTrust(False, False), identity, 0.0)
    return messages.written(messages.LINKS, fields)


def test_a_cell_is_believed_who_its_client_is_by_the_members_secret_alone(made: CellsCluster) -> None:
    settled(made)
    amqp = b"AMQP\0\1\0\0"
    said = on_behalf("alice")
    admitted = header.answer(header.ADMITTED)
    assert spoken(made, SECRET, said + amqp, said)[: len(admitted) + 4] == admitted + b"AMQP"
    assert spoken(made, "another secret of somebody", said + amqp, said) == b""
    # Whoever stands between the members can't say that it was another client.
    assert spoken(made, SECRET, on_behalf("admin") + amqp, said) in (admitted, b"")


def test_a_client_cannot_speak_as_a_cell(made: CellsCluster) -> None:
    settled(made)
    for port in [each.amqp for each in made.members]:
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            sock.sendall(on_behalf("admin") + b"AMQP\0\1\0\0")
            sock.settimeout(5)
            heard = b""
            try:
                while data := sock.recv(1000):
                    heard += data
            except ConnectionError:
                pass
        # The protocol header that it should have sent, and nothing else.
        assert heard[:4] in (b"AMQP", b"")
        assert len(heard) <= 8


# --- members come and go


def test_a_cell_is_handed_to_a_member_by_name(made: CellsCluster) -> None:
    owners = settled(made)
    [first, second] = [name for name in sorted({each.name for each in made.members}) if name != owners[3]]
    told = run_sluice(
        *("cluster", "move", first, "--cell", "3", "--http", f"http://127.0.0.1:{made.member(second).http}")
    )
    assert told == f"the cell goes to {first}\n"
    wait_until(lambda: made.owners().get(3) == first, "cell 3 at its new owner")
    refused = run_sluice("cluster", "move", "--http", f"http://127.0.0.1:{made.members[0].http}", status=1)
    assert "say which one" in refused


@pytest.mark.parametrize("fault", [kill_member, stop_member, cut_off_member])
def test_cells_of_a_member_that_fails_go_to_others_and_nothing_is_lost(
    made: CellsCluster, fault: Fault
) -> None:
    owners = settled(made)
    loaded = max(sorted(set(owners.values())), key=list(owners.values()).count)
    name = next(name for name, each in FAULTS.items() if each is fault)
    outcome = Outcome(name)
    crowd = Crowd(made, outcome.books, random.Random(1))
    try:
        one_round(made, crowd, outcome, made.member(loaded))
    finally:
        crowd.drop()
    assert len(outcome.books.accepted) > CELLS * 300
    [successors] = outcome.successors
    assert loaded not in successors
    after = settled(made)
    assert loaded in after.values(), "it is given cells again"


def test_one_cells_process_that_ends_takes_no_other_cell_along(made: CellsCluster) -> None:
    owners = settled(made)
    epochs, given = made.epochs(), given_to_fewer(made)
    owner = made.member(owners[2])
    others = {cell: pid for cell, pid in owner.cells().items() if cell != 2}
    os.kill(owner.cells()[2], 9)
    wait_until(lambda: made.epochs()[2][0] > epochs[2][0], "another life of cell 2")
    assert {cell: pid for cell, pid in owner.cells().items() if cell != 2} == others
    settled(made)
    now = made.epochs()
    moved = [cell for cell in range(CELLS) if now[cell][0] > epochs[cell][0] and cell != 2]
    # A member that lost its only cell is given another one by who has two more.
    assert len(moved) <= given_to_fewer(made) - given


def given_to_fewer(made: CellsCluster) -> int:
    """Return how many cells have been given to a member with fewer of them."""
    return sum(each.log.count("has fewer cells: it is given this one") for each in made.members)


# --- members that don't agree


def test_a_member_with_another_number_of_cells_or_without_a_secret_is_refused(
    made: CellsCluster, tmp_path: Path
) -> None:
    member = made.members[0]
    text = (member.folder / "broker.yaml").read_text()
    data = f"data: {tmp_path / 'data'}"
    own = text.replace(f"data: {member.data}", data)
    for each, word in ((f"cells: {CELLS}", "cells: 3"), (str(member.amqp), "0"), (str(member.http), "0")):
        own = own.replace(each, word)
    config = tmp_path / "broker.yaml"
    config.write_text(own)
    told = run_sluice("serve", "--config", str(config), status=1)
    assert f"the cluster 'main' has {CELLS}, and 3 are asked for" in told
    config.write_text("\n".join(line for line in text.splitlines() if "secret_file" not in line))
    assert "secret_file" in run_sluice("serve", "--check", "--config", str(config), status=1)


def test_cells_of_one_machine_become_those_of_a_cluster(tmp_path: Path) -> None:
    skip_without_servers()
    made = CellsCluster(
        tmp_path,
        members=2,
        cells=2,
        servers=1,
        extra=TIMES,
        policies=f"{PLACED}  - {{match: 'p.>', cell: 1}}\n",
    )
    try:
        names = [queue_in(0, 2, "p"), queue_in(0, 2), queue_in(1, 2)]
        first, second = made.members
        config = first.folder / "broker.yaml"
        before = config.read_text()
        config.write_text(before.partition("cluster:")[0])
        first.start()
        wait_until(lambda: "cells ready" in first.said, "cells of one machine")
        for name in names:
            send(first.amqp, name, ["kept"])
        first.stop()
        config.write_text(before)
        made.log.start()
        first.start()
        made.wait_for_owners()
        # Its policies are others, and nodes are found where they are.
        (second.folder / "policies.yaml").write_text(f"{PLACED}  - {{match: 'p.>', cell: 0}}\n")
        second.start()
        made.wait_for_standbys()
        made.wait_for_spread()
        assert "policies say of cell: other than the cluster was begun with" in second.said
        for name in names:
            assert bodies(take(second.amqp, name, 1)) == ["kept"]
        first.kill()
        made.wait_for_owners()
        assert second.api(f"/api/v1/queues/{names[0]}")["cell"] == 1
    finally:
        made.close()


def run_sluice(*words: str, status: int = 0) -> str:
    """Return what the command says, on either stream."""
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS)
def test_rounds_of_each_fault(tmp_path: Path, fault: str) -> None:
    skip_without_servers()
    dice = random.Random(7)
    with cells_cluster(tmp_path, extra="  rebalance: 3s\n", policies=POLICIES) as made:
        outcome = Outcome(fault)
        crowd = Crowd(made, outcome.books, dice)
        try:
            for _ in range(10):
                # A server of the log that was killed may take long to have all of it again.
                made.wait_for_standbys(180)
                owners = made.wait_for_spread()
                one_round(made, crowd, outcome, made.member(dice.choice(sorted(set(owners.values())))))
        finally:
            crowd.drop()
    assert outcome.rounds == 10
