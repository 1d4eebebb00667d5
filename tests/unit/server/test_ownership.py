"""An owner's view of its lease: it is suspended, goes on, or lets go of the cell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cluster.bodies import BodyStore
from broker.cluster.records import HANDOVER, TAKEOVER, decode, encode
from broker.server.ownership import ALONE_NS, FULL_NS, OwnedCell
from broker.store.port import FULL, WRITING
from tests.cluster.memory_log import MemoryEngine, MemoryLog
from tests.unit.cluster.test_follower import CELL, Owner, until

MS = 1_000_000
TTL_NS = 20_000 * MS


class Owning:
    """An owned cell over a log in memory."""

    def __init__(self, folder: Path) -> None:
        self.engine = MemoryEngine()
        self.owner = Owner(self.engine, folder / "a")
        # Time is what ``look`` is told; that the lease began lately is all that is left to the clock.
        self.owner.writer.lease.ttl_ns = TTL_NS
        self.told: list[tuple[str, str]] = []
        self.sound = "the farthest"
        self.cell = OwnedCell(
            self.owner.store, self.owner.writer, BodyStore(MemoryLog(self.engine)), lambda: self.sound
        )
        self.cell.changed = lambda kind, reason: self.told.append((kind, reason))

    @property
    def ends_ns(self) -> int:
        """When the lease is over."""
        return self.owner.writer.lease.ends_ns


@pytest.fixture
def owning(tmp_path: Path) -> Iterator[Owning]:
    made = Owning(tmp_path)
    yield made
    made.owner.store.close()
    made.cell.stop()


def test_an_owner_acts_until_its_lease_is_over_and_goes_on_when_it_is_renewed(owning: Owning) -> None:
    cell, store = owning.cell, owning.owner.store
    assert cell.look(owning.ends_ns - 1) == ""
    assert (store.state, cell.suspended) == (WRITING, "")
    ended = owning.ends_ns
    assert cell.look(ended) == ""
    assert store.state == FULL
    assert store.syncs_when_full
    assert "the cell's log has not answered for" in cell.suspended
    owning.owner.writer.lease.acked(ended)
    assert cell.look(ended + 1) == ""
    assert (store.state, cell.suspended, cell.suspensions) == (WRITING, "", 1)
    assert [kind for kind, _ in owning.told] == ["suspended", "resumed"]


def test_groups_that_are_sealed_while_it_is_suspended_reach_the_log(owning: Owning) -> None:
    owning.cell.look(owning.ends_ns)
    owning.owner.put(1)
    assert owning.owner.writer.acked_group == 1


def test_an_owner_that_hears_no_server_lets_go_after_another_half_of_its_lease(owning: Owning) -> None:
    cell = owning.cell
    began = owning.ends_ns
    owning.engine.down = True
    assert cell.look(began) == ""
    assert cell.look(began + TTL_NS // 2) == ""
    assert "no server of the cell's log can be reached" in cell.look(began + TTL_NS + 1)


def test_an_owner_that_hears_servers_without_a_leader_waits_for_one_longer(owning: Owning) -> None:
    cell, writer = owning.cell, owning.owner.writer
    # So much shorter than a lease that all of it fits in.
    writer.lease.ttl_ns = ALONE_NS // 2
    began = owning.ends_ns
    log = writer._log
    assert isinstance(log, MemoryLog)
    assert cell.look(began) == ""
    log.heard_ns = began + ALONE_NS
    assert cell.look(began + ALONE_NS) == ""
    log.heard_ns = began + ALONE_NS + 1
    assert "has not answered for too long" in cell.look(began + ALONE_NS + 1)


def test_an_owner_that_was_replaced_lets_go_at_once(owning: Owning) -> None:
    owning.owner.put(1)
    last = decode(owning.engine.last, owning.engine.records[-1])
    data, _ = encode(TAKEOVER, CELL, 2, 1, last.digest, b"b")
    owning.engine.records.append(data)
    owning.owner.queue.append(2, 1, 0, 0, b"too late")
    owning.owner.store.seal()
    until(lambda: owning.owner.writer.fenced, "the fence")
    assert owning.cell.look(time.monotonic_ns()) == "epoch 2 owns the cell"


@pytest.mark.parametrize(("asked", "named"), [("b", b"b"), ("", b"the farthest")])
def test_a_hand_over_names_the_member_that_was_asked_for_or_the_best(
    owning: Owning, asked: str, named: bytes
) -> None:
    assert owning.cell.hand_over(asked)
    record = decode(owning.engine.last, owning.engine.records[-1])
    assert (record.kind, record.payload) == (HANDOVER, named)


def test_an_owner_whose_disk_stays_full_is_relieved_and_one_whose_disk_was_full_a_moment_is_not(
    owning: Owning,
) -> None:
    cell, store = owning.cell, owning.owner.store
    now_ns = owning.ends_ns - TTL_NS // 2
    assert cell.relief(now_ns) == ""
    store.state = FULL
    assert cell.relief(now_ns) == ""
    assert cell.relief(now_ns + FULL_NS) == ""
    store.state = WRITING
    assert cell.relief(now_ns + FULL_NS + 1) == ""
    # Room that came for less than that time doesn't count, room that stayed does.
    store.state = FULL
    assert cell.relief(now_ns + FULL_NS + 2) == "the farthest"
    store.state = WRITING
    later_ns = now_ns + 3 * FULL_NS
    assert cell.relief(later_ns) == ""
    store.state = FULL
    assert cell.relief(later_ns + 1) == ""


def test_a_suspended_owner_has_no_full_disk(owning: Owning) -> None:
    cell = owning.cell
    ended_ns = owning.ends_ns
    cell.look(ended_ns)
    assert owning.owner.store.state == FULL
    assert cell.relief(ended_ns) == ""
    assert cell.relief(ended_ns + 2 * FULL_NS) == ""


def test_an_owner_whose_store_has_failed_leaves_the_cell_to_a_standby(owning: Owning) -> None:
    cell, store = owning.cell, owning.owner.store
    now_ns = owning.ends_ns - TTL_NS // 2
    store._fail("the disk is broken")
    assert cell.look(now_ns) == ""
    assert cell.relief(now_ns) == "the farthest"
    assert "the disk is broken" in cell.fault


def test_an_owner_whose_store_has_failed_lets_go_where_no_standby_is_sound(owning: Owning) -> None:
    cell = owning.cell
    owning.sound = ""
    owning.owner.store._fail("the disk is broken")
    assert "the disk is broken" in cell.look(owning.ends_ns - TTL_NS // 2)
