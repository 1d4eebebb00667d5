"""The conservation laws, checked on a live broker in one instant.

Every number here is kept by whoever changes it; this counts each of them anew from what it is made of. A
breach is a bug of ours: credit that leaked, a promise nobody holds, a message counted twice. It walks
everything there is (tens of milliseconds with thousands of nodes), so it runs when somebody asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from broker import constants
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.flow.connection_budget import ConnectionBudget
from broker.flow.gate import Gate
from broker.flow.producer_credit import ProducerCredit
from broker.queues.dispatch import Consumer

# More breaches than these say nothing more.
MOST = 100
# Room may be kept for others, and idle credit be sought, for less than this.
LONG_NS = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Audit:
    """The result: how much was looked at, and a sentence for each law that doesn't hold."""

    nodes: int
    producers: int
    consumers: int
    promised_msgs: int
    depth_msgs: int
    breaches: tuple[str, ...]


def audit(engine: Engine) -> Audit:
    """Check every gate, allocator, queue and window; the caller is between two turns."""
    nodes = list(engine.topology.every_node())
    breaches = [*_promises(engine, nodes), *_budgets(nodes)]
    uncommitted = _uncommitted(nodes)
    for node in nodes:
        breaches += islice(_of_node(node, uncommitted[node.gate]), MOST)
        breaches += _of_line(engine, node)
    return Audit(
        nodes=len(nodes),
        producers=sum(len(node.allocator.accounts) for node in nodes),
        consumers=sum(len(node.consumers) for node in nodes),
        promised_msgs=sum(node.allocator.promised_msgs for node in nodes),
        depth_msgs=sum(node.gate.depth_msgs for node in nodes),
        breaches=tuple(breaches[:MOST]),
    )


def _promises(engine: Engine, nodes: Iterable[Node]) -> Iterator[str]:
    """What gates have promised is what accounts hold: each credit once at every gate it needs room in."""
    msgs: dict[Gate, int] = defaultdict(int)
    nbytes: dict[Gate, int] = defaultdict(int)
    gates = {node.gate for node in nodes} | {engine.depths.memory, engine.depths.disk, engine.depths.temp}
    for node in nodes:
        allocator = node.allocator
        for account in allocator.accounts:
            for each in allocator.reservations.members:
                msgs[each.gate] += each.ways * account.outstanding
                nbytes[each.gate] += each.ways * each.weight(account.reserve_bytes) * account.outstanding
        for size, count in allocator.uncommitted().items():
            for each in allocator.reservations.members:
                msgs[each.gate] += each.ways * count
                nbytes[each.gate] += each.ways * each.weight(size) * count
    for gate in gates:
        if gate.promised_msgs != msgs[gate]:
            yield f"{gate.name}: {gate.promised_msgs} credits promised, links hold {msgs[gate]}"
        if gate.promised_bytes != nbytes[gate]:
            yield f"{gate.name}: {gate.promised_bytes} bytes promised, links hold {nbytes[gate]}"


def _uncommitted(nodes: Iterable[Node]) -> dict[Gate, int]:
    """How many messages of open transactions each gate keeps room for: that is never taken back."""
    found: dict[Gate, int] = defaultdict(int)
    for node in nodes:
        for each in node.allocator.reservations.members:
            found[each.gate] += each.ways * node.allocator.uncommitted_msgs
    return found


def _budgets(nodes: Iterable[Node]) -> Iterator[str]:
    """What a connection was promised is what its links hold at all nodes, each credit with its place."""
    found: dict[ConnectionBudget, list[int]] = defaultdict(lambda: [0, 0])
    for node in nodes:
        for account in node.allocator.accounts:
            if account.budget is not None:
                held = found[account.budget]
                held[0] += account.outstanding
                held[1] += _in_memory(node, account)
    for budget, (msgs, nbytes) in found.items():
        gate = budget.gate
        if (gate.promised_msgs, gate.promised_bytes) != (msgs, nbytes):
            yield (
                f"{gate.name}: {gate.promised_msgs} credits of {gate.promised_bytes} bytes promised,"
                f" links hold {msgs} of {nbytes}"
            )
        if msgs > 1 and gate.depth_bytes + nbytes > gate.stop_bytes:
            yield f"{gate.name}: {gate.depth_bytes} bytes held and {nbytes} promised, limit {gate.stop_bytes}"


def _in_memory(node: Node, account: ProducerCredit) -> int:
    """What a link's credit would take of memory, of one copy."""
    most = node.allocator.reservations.most_held
    return account.outstanding * (min(account.reserve_bytes, most) + constants.HELD_BYTES)


def _of_node(node: Node, uncommitted: int) -> Iterator[str]:
    yield from (f"{node.name}: {breach}" for breach in _of_allocator(node))
    yield from (f"{node.name}: {breach}" for breach in _of_gate(node.gate, uncommitted))
    yield from (f"{node.name}: {breach}" for breach in _of_queue(node))
    for consumer in node.consumers:
        yield from (f"{node.name}: {breach}" for breach in _of_window(consumer))


def _of_allocator(node: Node) -> Iterator[str]:
    allocator = node.allocator
    held = sum(account.outstanding for account in allocator.accounts)
    if held != allocator.promised_msgs:
        yield f"the allocator promised {allocator.promised_msgs} credits, its links hold {held}"
    parked = sum(len(account.parked) for account in allocator.accounts)
    if parked != allocator.parked_msgs:
        yield f"{allocator.parked_msgs} messages parked, its links have {parked}"
    line, rest = set(map(id, allocator.line)), set(map(id, allocator.rest))
    for account in allocator.accounts:
        yield from _of_account(account, id(account) in line, id(account) in rest)


def _of_account(account: ProducerCredit, in_line: bool, resting: bool) -> Iterator[str]:
    if account.outstanding < 0 or account.withdrawn < 0:
        yield f"a link holds {account.outstanding} credits, {account.withdrawn} withdrawn"
    if in_line != bool(account.waiting) or resting != bool(account.resting):
        yield "a link's place in line isn't where it says"
    waits = in_line or resting or account.waits_for_budget or account.held
    if account.window_max and account.outstanding == 0 and not waits:
        yield "a link without credit waits nowhere: nothing would give it any"


def _of_line(engine: Engine, node: Node) -> Iterator[str]:
    """Whoever is first in line isn't kept waiting beside room for any in line: it came free and woke nobody.
    Not where the turn goes on with the node, or keeps room of a budget for another.
    """
    allocator = node.allocator
    if not allocator.line or node.dirty or node in engine.turn.unfinished or engine.credit.keeper is not None:
        return
    if engine.durability.is_behind():
        return
    head = allocator.line[0]
    waited_ns = engine.turn.now_ns - head.blocked_since_ns
    if head.outstanding or head.parked or not head.blocked_since_ns or waited_ns < LONG_NS:
        return
    size = max(account.reserve_bytes for account in allocator.line)
    room = min(allocator.room(size), head.wants())
    if head.budget is not None:
        room = min(room, head.budget.share(allocator.reservations.held(size)))
    if room > 0:
        waited = f"{waited_ns / 1e9:.1f} s"
        yield f"{node.name}: a link has waited {waited} for credit, and there is room for {room}"


def _of_gate(gate: Gate, uncommitted: int) -> Iterator[str]:
    credit = gate.promised_msgs - uncommitted
    if not gate.enforced or credit == 0:
        return
    if gate.stop_msgs and gate.depth_msgs + gate.promised_msgs > gate.stop_msgs:
        yield f"{gate.depth_msgs} there and {gate.promised_msgs} promised pass {gate.stop_msgs}"
    if gate.closed:
        yield f"stopped, and {credit} credits are promised"


def _of_queue(node: Node) -> Iterator[str]:
    if node.is_topic:
        return
    queue = node.queue
    spooled = 0 if node.spool is None else node.spool.count
    delayed = 0 if node.schedule is None else node.schedule.count
    there = queue.ready + queue.acquired + queue.behind + queue.aside + queue.pending + spooled + delayed
    if node.stream is not None:
        slowest = node.stream.named.slowest
        there = max(node.stream.next_offset - slowest, 0) if slowest >= 0 else 0
        nbytes = node.stream.bytes_from(slowest) if slowest >= 0 and node.gate.stop_bytes else 0
        if nbytes >= 0 and nbytes != node.gate.depth_bytes:
            yield f"depth {node.gate.depth_bytes} bytes, and {nbytes} bytes are there"
    if there != node.gate.depth_msgs:
        yield f"depth {node.gate.depth_msgs}, and {there} messages are there"
    if min(queue.ready, queue.acquired, queue.behind, queue.aside, queue.pending, node.gate.depth_bytes) < 0:
        yield "a count below zero"


def _of_window(consumer: Consumer) -> Iterator[str]:
    window = cast(Any, getattr(consumer, "window", None))
    if window is None:
        return
    if window.unsettled < 0 or (window.limit and window.unsettled > window.limit):
        yield f"a consumer holds {window.unsettled} of a window of {window.limit}"
