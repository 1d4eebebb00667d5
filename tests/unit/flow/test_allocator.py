"""How room is dealt: the formula's terms against the credit that is granted, the line, parked messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.flow.allocator import CreditAllocator
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.producer_credit import ProducerCredit
from tests.unit.flow.ports import MS, Link, allocator, gate_of

FAR_NS = 1 << 60
# A broker's clock doesn't begin at 0, where nothing has ever been looked for.
START_NS = 1000 * MS


def least(address: CreditAllocator, account: ProducerCredit) -> int:
    return min(term.msgs for term in address.terms(account))


def limits(low: int, high: int) -> st.SearchStrategy[int]:
    """A threshold, or 0 for none."""
    return st.just(0) | st.integers(low, high)


@st.composite
def addresses(draw: st.DrawFn) -> CreditAllocator:
    """An address in the middle of its work: some credit is out, some used, some thresholds were changed."""
    address = allocator(draw(limits(1, 200)), draw(limits(100, 40_000)))
    if draw(st.booleans()):
        address.budget(gate_of("memory_limit", 0, draw(limits(500, 80_000))), 300)
    for name in draw(st.lists(st.sampled_from("ab"), max_size=2, unique=True)):
        other = gate_of(name, draw(limits(1, 100)), draw(limits(100, 40_000)))
        for _ in range(draw(st.integers(1, 2))):
            address.attach_gate(other, 0)
    if draw(st.booleans()):
        address.claim(gate_of("store_limit", 0, draw(limits(500, 80_000))), draw(st.integers(1, 2)))
    one_size = draw(st.none() | st.integers(1, 900))
    for _ in range(draw(st.integers(1, 6))):
        budget = draw(st.none() | st.builds(ConnectionBudget, st.integers(500, 20_000)))
        account = address.open(Link(), draw(st.integers(1, 300)), draw(st.integers(1, 100)), 0, budget)
        account.reserve_bytes = account.learned_bytes = one_size or draw(st.integers(1, 900))
    address.settle_turn(0)
    for account in address.accounts:
        for _ in range(draw(st.integers(0, min(account.outstanding, 10)))):
            account.use(account.reserve_bytes, MS)
            for each in address.reservations.members:
                each.gate.depth_msgs += each.ways
                each.gate.depth_bytes += each.ways * each.weight(account.reserve_bytes)
        account.held = draw(st.integers(0, 3))
    for each in address.reservations.members:
        if draw(st.booleans()):
            each.gate.stop_msgs += draw(st.integers(0, 50)) if each.gate.stop_msgs else 0
            each.gate.stop_bytes += draw(st.integers(0, 9_000)) if each.gate.stop_bytes else 0
    address.trim(MS)
    for account in address.accounts:
        address.wait(account, MS)
    address.reclaim_ns = address.probe_ns = FAR_NS
    return address


@given(addresses())
def test_the_least_term_is_the_credit_that_is_dealt(address: CreditAllocator) -> None:
    line: list[ProducerCredit] = list(address.line)
    before = [(each.gate.promised_msgs, each.gate.promised_bytes) for each in address.reservations.members]
    promised = {id(account): account.outstanding for account in line}
    expected = {id(account): least(address, account) for account in line}
    assert list(address.line) == line
    assert before == [
        (each.gate.promised_msgs, each.gate.promised_bytes) for each in address.reservations.members
    ]
    address.settle_turn(MS)
    alike = len({account.reserve_bytes for account in line}) == 1
    for place, account in enumerate(line):
        dealt = account.outstanding - promised[id(account)]
        assert dealt <= expected[id(account)]
        if alike or place == 0:
            assert dealt == expected[id(account)]


def test_the_terms_come_in_the_order_of_the_formula() -> None:
    address = allocator(100)
    address.budget(gate_of("memory_limit", 0, 1 << 30))
    address.attach_gate(gate_of("wide", 80), 0)
    address.attach_gate(gate_of("narrow", 20), 0)
    address.claim(gate_of("store_limit"), 1)
    account = address.open(Link(), 50, 50, 0, ConnectionBudget(1 << 20))
    assert [(term.name, term.gate) for term in address.terms(account)] == [
        ("window", ""),
        ("share", ""),
        ("gate", "orders"),
        ("subscription", "narrow"),
        ("memory", "memory_limit"),
        ("disk", "store_limit"),
        ("connection", "connection_memory_limit"),
    ]
    assert [term.msgs for term in address.terms(account)][:4] == [50, 20, 100, 20]


def test_parked_messages_ahead_leave_no_share() -> None:
    address, link = allocator(100), Link()
    first, second = (address.open(port, 10, 10, MS) for port in (link, Link()))
    first.park("late", 1, MS)
    assert {term.name: term.msgs for term in address.terms(second)}["share"] == 0
    address.settle_turn(MS)
    assert link.admitted == ["late"]
    assert second.outstanding == 10


def test_room_is_dealt_to_equals_alike() -> None:
    address = allocator(90)
    accounts = [address.open(Link(), 100, 100, START_NS) for _ in range(3)]
    for account in accounts:
        assert account.window == 90 // (accounts.index(account) + 1)
    address.settle_turn(START_NS)
    assert [account.outstanding for account in accounts] == [30, 30, 30]


def test_one_that_falls_to_half_its_window_gets_more_at_once() -> None:
    address = allocator(1000)
    account = address.open(Link(), 100, 10, 0)
    address.settle_turn(0)
    for _ in range(5):
        account.use(1, MS)
    assert not address.renew(account, MS)
    assert (account.window, account.outstanding) == (20, 20)


def test_nothing_is_dealt_in_another_ones_turn() -> None:
    address = allocator(10)
    account = address.open(Link(), 10, 10, 0)
    address.wait_its_turn(MS)
    assert account.outstanding == 0
    assert address.next_deadline() == 0
