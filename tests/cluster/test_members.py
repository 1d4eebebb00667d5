"""Members of one cell as processes: the owner is lost in all ways, and members come back."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from proton import Message, ProtonException, Timeout
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection, BlockingSender

from broker.server.member import YOUNG_S
from tests.cluster.applications import HalfDone, bodies, call, connection, read_stream, send, take
from tests.cluster.conftest import skip_without_servers
from tests.cluster.world import Cell, MemberProcess, cell, port_of, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.wire]
# A lease that is shorter than the usual one, and long enough for a machine with much else to do.
TIMES = "  ttl: 2s\n  margin: 400ms\n  mark: 300ms\n"
POLICIES = """policies:
  - {match: "news", kind: topic, durable: true}
  - {match: "flights", kind: stream, durable: true}
  - {match: "short", kind: stream, durable: true, max_size: 8MB}
  - {match: "paged", kind: queue, durable: true, overflow: page, memory_limit: 1MB}
  - {match: "*", kind: queue, durable: true}
"""
LARGE = bytes(range(256)) * 20_480
PAGED = [f"{number}:" + "p" * 200_000 for number in range(25)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """The cell of all tests here; each begins with ``settle``."""
    skip_without_servers()
    with cell(tmp_path_factory.mktemp("cell"), extra=TIMES, policies=POLICIES) as made:
        made.start()
        yield made


def depth(member: MemberProcess, queue: str) -> int:
    """Return how many messages a queue has, as its owner says."""
    return int(member.api(f"/api/v1/queues/{queue}")["depth_msgs"])


def end_at_once(client: BlockingConnection) -> None:
    """Let go of a connection whose broker is gone."""
    client.timeout = 0.1
    with suppress(ProtonException):
        client.close()


# --- the owner is killed


@dataclass(frozen=True)
class Killed:
    """A cell whose first owner was killed with much under way."""

    made: Cell
    before: MemberProcess
    after: MemberProcess
    epochs: tuple[int, int]
    passed_on: int
    delivered: list[str]


@pytest.fixture(scope="module")
def killed(made: Cell) -> Killed:
    """Have an owner serve all kinds of things, then kill it; nothing is awaited that wasn't confirmed."""
    owner = made.settle()
    standby = made.standbys[0]
    epoch = owner.epoch_owned
    call(owner.http, "POST", "/api/v1/producers/stop", {"target": "stopped.*"})
    send(standby.amqp, "orders", [f"order {number}" for number in range(40)])
    passed_on = depth(owner, "orders")
    send(owner.amqp, "quiet", ["never delivered"])
    with connection(owner.amqp, container_id="reader") as reader:
        reader.create_receiver("news", name="kept", options=DurableSubscription())
    send(owner.amqp, "news", ["told"])
    send(owner.amqp, "later", ["not yet"], annotations={"x-opt-delivery-delay": 3_600_000})
    send(standby.amqp, "large", [LARGE, LARGE])
    send(owner.amqp, "paged", PAGED)
    assert int(owner.api("/api/v1/queues/paged")["paged_msgs"]) > 0
    half = HalfDone(owner.amqp, "moved", ["committed 1", "committed 2"], ["left 1", "left 2"])
    container = half.run()
    holder = BlockingConnection(f"amqp://127.0.0.1:{standby.amqp}")
    receiver = holder.create_receiver("orders", credit=5)
    try:
        delivered = [str(receiver.receive(timeout=30).body) for _ in range(5)]
    except Timeout as late:
        states = [
            each.api(f"/api/v1/{what}") for each in made.members for what in ("cluster", "queues/orders")
        ]
        raise AssertionError(f"nothing is delivered: {states}\n{made.logs()}") from late
    owner.kill()
    after = made.wait_for_owner(other_than=owner)
    end_at_once(holder)
    del container
    return Killed(made, owner, after, (epoch, after.epoch_owned), passed_on, delivered)


def test_one_of_them_is_the_first_owner_and_a_standby_passes_clients_on(killed: Killed) -> None:
    assert killed.epochs[0] == 1
    assert killed.passed_on == 40


def test_another_serves_after_a_kill_with_all_that_was_accepted(killed: Killed) -> None:
    assert killed.epochs[1] == 2
    found = take(killed.after.amqp, "orders", 40)
    assert sorted(bodies(found)) == sorted(f"order {number}" for number in range(40))
    flagged = {each.body for each in found if not each.first_acquirer}
    assert set(killed.delivered) <= flagged, "these may have been delivered before"
    [quiet] = take(killed.after.amqp, "quiet", 1)
    assert quiet.first_acquirer, "nobody was sent this one"


def test_a_durable_subscription_is_there_with_its_messages(killed: Killed) -> None:
    with connection(killed.after.amqp, container_id="reader") as reader:
        subscription = reader.create_receiver("news", name="kept", options=DurableSubscription())
        assert subscription.receive(timeout=30).body == "told"
        subscription.accept()


def test_a_transaction_that_was_committed_is_there_and_no_other(killed: Killed) -> None:
    assert depth(killed.after, "moved") == 2
    assert bodies(take(killed.after.amqp, "moved", 2)) == ["committed 1", "committed 2"]


def test_delayed_messages_and_an_operator_s_holds_survive(killed: Killed) -> None:
    shown = killed.after.api("/api/v1/queues/later/delayed")
    assert len(shown["messages"]) == 1
    assert killed.after.api("/api/v1/holds") == {"holds": ["stopped.*"]}


def test_large_messages_survive_and_leave_the_log_when_they_are_consumed(killed: Killed) -> None:
    made = killed.made
    assert made.stream("_BODIES")["bytes"] > 2 * len(LARGE)
    found = take(killed.after.amqp, "large", 2)
    assert [each == LARGE for each in bodies(found)] == [True, True]
    wait_until(lambda: made.stream("_BODIES")["messages"] == 0, "bodies that leave the log")


def test_messages_that_were_on_disk_only_are_there_in_their_order(killed: Killed) -> None:
    assert bodies(take(killed.after.amqp, "paged", len(PAGED))) == PAGED


# --- the owner leaves, sleeps, is cut off


def test_an_owner_that_is_told_to_stop_hands_over_at_once(made: Cell) -> None:
    owner = made.settle()
    began = time.monotonic()
    owner.signal(signal.SIGTERM)
    after = made.wait_for_owner(other_than=owner)
    took_s = time.monotonic() - began
    send(after.amqp, "handed", ["over"])
    assert bodies(take(after.amqp, "handed", 1)) == ["over"]
    assert took_s < 2.0
    wait_until(lambda: not owner.is_running, "the end of the first owner")
    assert owner.process is not None
    assert owner.process.returncode == 0
    assert "Traceback" not in owner.log


def test_an_owner_that_slept_wakes_up_fenced_and_follows(made: Cell) -> None:
    owner = made.settle()
    assert owner.process is not None
    pid = owner.process.pid
    client = BlockingConnection(f"amqp://127.0.0.1:{owner.amqp}", timeout=10)
    sender = client.create_sender("slept")
    sender.send(Message(body="before", durable=True))
    owner.signal(signal.SIGSTOP)
    wait_until(lambda: owner.is_stopped, "the stop")
    after = made.wait_for_owner(other_than=owner)
    send(after.amqp, "slept", ["meanwhile"])
    owner.signal(signal.SIGCONT)
    with pytest.raises(ProtonException):
        sender.send(Message(body="too late", durable=True))
    wait_until(lambda: owner.is_standby, "a standby")
    assert owner.process.pid == pid, "it has executed itself anew"
    assert os.path.exists(f"/proc/{pid}")  # noqa: PTH110
    assert made.owner is after
    assert bodies(take(owner.amqp, "slept", 2)) == ["before", "meanwhile"]
    assert depth(after, "slept") == 0
    end_at_once(client)


def test_an_owner_that_is_cut_off_closes_its_clients_and_comes_back(made: Cell) -> None:
    owner = made.settle()
    client = BlockingConnection(f"amqp://127.0.0.1:{owner.amqp}", timeout=30)
    sender = client.create_sender("cut")
    sender.send(Message(body="before", durable=True))
    owner.freeze(True)
    # It has credit for the first one, which isn't confirmed.
    with pytest.raises(ProtonException):
        send_until_closed(sender)
    after = made.wait_for_owner(other_than=owner)
    send(after.amqp, "cut", ["meanwhile"])
    owner.freeze(False)
    wait_until(lambda: owner.is_standby, "a standby")
    assert made.owner is after
    end_at_once(client)
    found = bodies(take(after.amqp, "cut", depth(after, "cut")))
    assert {"before", "meanwhile"} <= set(found)


def send_until_closed(sender: BlockingSender) -> None:
    """Send one message after the other."""
    while True:
        sender.send(Message(body="not confirmed", durable=True))


# --- a member's directory


def test_what_a_member_said_before_it_was_cut_off_is_no_twin_of_it_when_it_is_heard_again(made: Cell) -> None:
    owner = made.settle()
    server = port_of(owner.api("/api/v1/cluster")["engine"]["connected"])
    owner.freeze(True)
    wait_until(lambda: "has let go of the cell" in owner.said.rpartition(" ready: ")[2], "its end")
    # Its next life is heard by the other servers, and only then its last words before are by this one.
    for proxy in owner.proxies:
        proxy.freeze(proxy.port == server)
    wait_until(lambda: owner.is_standby, "its next life")
    owner.freeze(False)
    # So long a young member looks for others of its name.
    time.sleep(YOUNG_S + 1)
    assert owner.is_standby, owner.said[-3000:]


def test_a_member_with_an_empty_directory_joins_and_can_take_over(made: Cell) -> None:
    owner = made.settle()
    send(owner.amqp, "joined", ["one", "two"])
    joining = made.standbys[0]
    joining.stop()
    shutil.rmtree(joining.data)
    made.settle()
    move_to(made, joining)
    assert bodies(take(joining.amqp, "joined", 2)) == ["one", "two"]


def test_a_stream_has_its_messages_and_offsets_at_every_member(made: Cell) -> None:
    owner = made.settle()
    send(owner.amqp, "flights", [f"flight {number}" for number in range(500)])
    read_stream(owner.amqp, "flights::billing", 200)
    owner.kill()
    after = made.wait_for_owner(other_than=owner)
    send(after.amqp, "flights", [f"flight {number}" for number in range(500, 600)])
    whole = [(number, f"flight {number}") for number in range(600)]
    assert read_stream(after.amqp, "flights", 600) == whole
    # One that joins with nothing has them as well.
    made.settle()
    joining = made.standbys[0]
    joining.stop()
    shutil.rmtree(joining.data)
    made.settle()
    move_to(made, joining)
    assert read_stream(joining.amqp, "flights", 600) == whole
    assert bodies(take(joining.amqp, "flights::billing", 1)) == ["flight 200"]


def test_what_retention_has_let_go_of_a_stream_is_gone_at_standbys_too(made: Cell) -> None:
    owner = made.settle()
    send(owner.amqp, "short", [bytes(100_000)] * 200)
    first = int(owner.api("/api/v1/queues/short")["first_offset"])
    assert first > 50
    made.settle()
    follower = made.standbys[0]

    def kept() -> int:
        segments = sorted(follower.data.glob("streams/*/*.segment"))
        return sum(path.stat().st_size for path in segments if path.parent.name == segments[-1].parent.name)

    def is_cut() -> bool:
        # It lets go of whole segments, at a checkpoint or with what comes.
        send(owner.amqp, "short", [bytes(100_000)] * 5)
        return kept() < 12 << 20

    wait_until(is_cut, "less of it", 60)
    move_to(made, follower)
    shown = follower.api("/api/v1/queues/short")
    found = read_stream(follower.amqp, "short", 20)
    assert [each[0] for each in found] == list(range(shown["first_offset"], shown["first_offset"] + 20))
    assert shown["first_offset"] > 50


def test_a_damaged_directory_is_set_aside_and_built_anew(made: Cell) -> None:
    owner = made.settle()
    send(owner.amqp, "rebuilt", ["kept"])
    hurt = made.standbys[0]
    hurt.stop()
    damage(hurt.data)
    made.settle()
    assert "set aside and built anew" in hurt.log
    assert hurt.data.with_name("data.aside").is_dir()
    move_to(made, hurt)
    assert bodies(take(hurt.amqp, "rebuilt", 1)) == ["kept"]


def test_a_member_that_is_told_to_stop_while_it_takes_over_stops(made: Cell) -> None:
    owner = made.settle()
    owner.kill()
    wait_until(lambda: any("taking over" in each.said for each in made.standbys), "a take-over")
    successor = next(each for each in made.members if each.is_running and "taking over" in each.said)
    successor.signal(signal.SIGTERM)
    wait_until(lambda: not successor.is_running, "its end")
    assert made.wait_for_owner() not in (owner, successor)


def move_to(made: Cell, member: MemberProcess) -> None:
    """Have one certain member own the cell: the others leave, the owner as the last."""
    owner = made.settle()
    for each in made.standbys:
        if each is not member:
            each.stop()
    owner.stop()
    assert made.wait_for_owner(other_than=owner) is member


def damage(data: Path) -> None:
    """Turn bits of the directory's own database: its file can't be what a broker wrote."""
    file = data / "directory.mdb"
    found = bytearray(file.read_bytes())
    for at in range(0, len(found), 64):
        if any(found[at : at + 64]):
            found[at + 8] ^= 0xFF
    file.write_bytes(found)
