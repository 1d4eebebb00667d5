"""Why a link waits, in one sentence each: which node, which threshold, since when, what frees it and when.

Pure: it reads gates and link views and is told the time. The rate behind every forecast is the node's
own, of the last second that was sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from broker.engine import SECOND_NS
from broker.flow.gate import Gate
from broker.flow.ledger import IDLE_NS
from broker.manage.bars import COUNT, OPERATOR, SIZE, Bar, bars, budgets
from broker.manage.views import ConsumerView, ProducerView
from broker.node import Node
from broker.units import KB, SIZE_UNITS, format_size

# What a link waits for, beyond the settings that bars name.
PROMISED = "promised"  # the gate is open, but other producers hold its room
TOO_LARGE = "message_size"  # the gate is open, but its messages are larger than the room
TURN = "turn"  # there is room; the next dealing gives it
WINDOW = "consumer_flow_limit"
CONNECTION = "connection_flow_limit"
CREDIT = "credit"  # the client asked for no more
NOTHING = "nothing"
STORE = "store"  # nothing can be kept on disk


@dataclass(frozen=True, slots=True)
class Why:
    """One answer. ``subject`` is producer, consumer or node; ``eta_s`` is None where nobody can tell."""

    subject: str
    node: str
    cause: str
    depth: int
    threshold: int
    resume: int
    eta_s: float | None
    frees: str
    sentence: str
    link: str = ""
    link_id: str = ""
    container: str = ""
    peer: str = ""
    blocked_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Reason:
    cause: str
    text: str
    frees: str
    bar: Bar
    eta_s: float | None = None


def of_producer(link: ProducerView, node: Node, held_by: str, now_ns: int, store: str = "") -> Why:
    """Why a blocked producer link waits; ``store`` says why nothing can be kept on disk, if nothing can."""
    reason = _producer_reason(link, node, held_by, store)
    waits = f"has {link.parked:,} unsettled messages parked" if link.parked else "has no credit"
    if not link.blocked_since_ns:
        return _answer("producer", link, node, reason, waits)
    blocked_s = (now_ns - link.blocked_since_ns) / SECOND_NS
    return _answer("producer", link, node, reason, f"{waits}, for {span(blocked_s)} now", blocked_s)


def of_consumer(link: ConsumerView, node: Node) -> Why | None:
    """Why a consumer link is sent nothing; None if it is merely waiting for messages."""
    reason = _consumer_reason(link, node)
    return None if reason is None else _answer("consumer", link, node, reason, "is sent nothing")


def of_node(node: Node, held_by: str) -> Why:
    """A node at which no link waits."""
    reason = _node_reason(node, held_by)
    sentence = f"{reason.text}; no producer waits and no consumer is shut."
    if reason.frees:
        sentence += f" It opens {reason.frees}{_eta_text(reason)}."
    return _why("node", node, reason, sentence)


def idle_link(name: str, node: Node) -> Why:
    """A link that waits for nothing but its client, or for messages."""
    reason = _Reason(NOTHING, "", "", _bar_of(node.gate, COUNT))
    return _why("link", node, reason, f"link '{name}' at '{node.name}' is neither blocked nor shut.")


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _answer(
    subject: str,
    link: ProducerView | ConsumerView,
    node: Node,
    reason: _Reason,
    waits: str,
    blocked_s: float | None = None,
) -> Why:
    who = f"{subject} link '{link.link}' of '{link.container}' ({link.peer})"
    sentence = f"{who} at '{node.name}' {waits}: {reason.text}; it goes on {reason.frees}{_eta_text(reason)}."
    answer = _why(subject, node, reason, sentence)
    return replace(
        answer,
        link=link.link,
        link_id=link.id,
        container=link.container,
        peer=link.peer,
        blocked_s=blocked_s,
    )


def _why(subject: str, node: Node, reason: _Reason, sentence: str) -> Why:
    return Why(
        subject=subject,
        node=node.name,
        cause=reason.cause,
        depth=reason.bar.depth,
        threshold=reason.bar.stop,
        resume=reason.bar.resume,
        eta_s=reason.eta_s,
        frees=reason.frees,
        sentence=sentence,
    )


def _producer_reason(link: ProducerView, node: Node, held_by: str, store: str) -> _Reason:
    for part, gate in _gates(node):
        if gate.closed:
            return _closed(part, gate, held_by)
    for part, gate in _gates(node):
        if gate.room(link.reserve_bytes) == 0:
            return _crowded(link, part, gate)
    for gate in budgets(node):
        if gate.held:
            return _unwritable(gate, store)
        if gate.room(link.reserve_bytes) == 0:
            return _spent(gate)
    return _Reason(TURN, "there is room", "with the next dealing of credit", Bar(TURN))


def _gates(node: Node) -> Iterator[tuple[Node, Gate]]:
    """Every gate a message to the node needs room in, and whose it is."""
    yield node, node.gate
    for part in node.subscriptions:
        yield part, part.gate
    for each in (node, *node.subscriptions):
        for bridge in each.bridges:
            yield from ((taker, taker.gate) for owner, taker in bridge.coupled if owner is node)


def _unwritable(gate: Gate, store: str) -> _Reason:
    text = f"nothing can be kept on disk ({store or 'the store says why'})"
    return _Reason(STORE, text, "when the store writes again", Bar(STORE, gate.depth_bytes, gate.stop_bytes))


def _spent(gate: Gate) -> _Reason:
    """A budget over all nodes has no room, though this node has."""
    bar = Bar(gate.name, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
    text = (
        f"the broker's {gate.name} is used up: {about(gate.depth_bytes)} of {about(gate.stop_bytes)} taken"
        f" and {about(gate.promised_bytes)} promised, over all queues"
    )
    return _Reason(gate.name, text, "when messages leave, here or elsewhere", bar)


def _closed(node: Node, gate: Gate, held_by: str) -> _Reason:
    found = bars(gate)
    thresholds = [bar for bar in found if bar.setting != OPERATOR]
    causes = " and ".join(_bar_text(bar, held_by) for bar in found)
    name = f"{node.kind} '{node.name}'"
    if gate.held:
        after = f" and {_below(thresholds)}" if thresholds else ""
        frees = f"when an operator starts producers again{after}"
        return _Reason(OPERATOR, f"{name} is stopped by {causes}", frees, found[0])
    bar = max(thresholds, key=lambda bar: _seconds(bar, node))
    eta_s = _seconds(bar, node)
    stuck = eta_s == float("inf")
    text = f"{name} is stopped by {causes}" + (_standstill(node) if stuck else "")
    return _Reason(bar.setting, text, _below(thresholds), bar, None if stuck else eta_s)


def _bar_text(bar: Bar, held_by: str) -> str:
    if bar.setting == OPERATOR:
        return f"an operator (producers stopped for '{held_by}')" if held_by else "an operator"
    return f"{bar.setting} ({_filled(bar)})"


def _below(thresholds: Iterable[Bar]) -> str:
    words = [
        f"below {bar.setting.replace('stop', 'resume')} {_number(bar.setting, bar.resume)}"
        f" ({_number(bar.setting, bar.excess)} to go)"
        for bar in thresholds
    ]
    return "when the depth is " + " and ".join(words)


def _filled(bar: Bar) -> str:
    """`50 of 100 messages queued`."""
    unit = "" if bar.setting == SIZE else " messages"
    return f"{_number(bar.setting, bar.depth)} of {_number(bar.setting, bar.stop)}{unit} queued"


def _number(setting: str, number: int) -> str:
    return about(number) if setting == SIZE else f"{number:,}"


def about(size: int) -> str:
    """Bytes in the unit that reads best, rounded unless it is exact."""
    if size < KB or size % KB == 0:
        return format_size(size)
    unit = next(unit for unit in ("GB", "MB", "KB") if size >= SIZE_UNITS[unit])
    return f"{size / SIZE_UNITS[unit]:.1f} {unit}"


def _seconds(bar: Bar, node: Node) -> float:
    """How long the node drains at its present rate until the bar is gone."""
    if node.rate_out <= 0:
        return float("inf")
    if bar.setting == COUNT:
        return bar.excess / node.rate_out
    return bar.excess / (node.rate_out * node.gate.depth_bytes / max(node.gate.depth_msgs, 1))


def _standstill(node: Node) -> str:
    return ", nothing leaves it" + ("" if node.consumers else " and it has no consumer")


def _crowded(link: ProducerView, node: Node, gate: Gate) -> _Reason:
    """The gate is open and yet holds no room for this link."""
    left = gate.stop_bytes - gate.depth_bytes - gate.promised_bytes
    too_large = gate.stop_bytes > 0 and left < link.reserve_bytes
    name = f"{node.kind} '{node.name}'"
    if too_large and gate.room(1) > 0:
        bar = Bar(SIZE, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
        text = (
            f"{name} is open, but its messages of about {about(link.reserve_bytes)} are larger than"
            f" the {about(max(left, 0))} left below flow_stop_size {about(gate.stop_bytes)}"
        )
        return _Reason(TOO_LARGE, text, f"when so much has left, or '{node.name}' is empty", bar)
    setting = SIZE if too_large else COUNT
    bar = _bar_of(gate, setting)
    text = (
        f"{name} is open, but its room is promised to other producers:"
        f" {_number(setting, bar.depth)} queued and {gate.promised_msgs:,} credits"
        f" reach {setting} {_number(setting, bar.stop)}"
    )
    frees = f"when they use it, or lose it for lying idle (after {IDLE_NS // 1_000_000} ms)"
    return _Reason(PROMISED, text, frees, bar)


def _bar_of(gate: Gate, setting: str) -> Bar:
    if setting == SIZE:
        return Bar(SIZE, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
    return Bar(COUNT, gate.depth_msgs, gate.stop_msgs, gate.resume_msgs)


def _consumer_reason(link: ConsumerView, node: Node) -> _Reason | None:
    if link.shut:
        text = f"{link.unsettled:,} messages unsettled, its window ({WINDOW}) is {link.window_limit:,}"
        bar = Bar(WINDOW, link.unsettled, link.window_limit, link.reopen)
        settle = max(link.unsettled - link.reopen, 0)
        # One consumer's share of the node's rate is known only where there is one consumer.
        alone = len(node.consumers) == 1 and node.rate_out > 0
        frees = f"when {settle:,} of them are settled"
        return _Reason(WINDOW, text, frees, bar, settle / node.rate_out if alone else None)
    if link.connection_shut:
        unsettled, limit = link.connection_unsettled, link.connection_limit
        text = f"{unsettled:,} messages unsettled on its connection, {CONNECTION} is {limit:,}"
        bar = Bar(CONNECTION, unsettled, limit, limit)
        return _Reason(CONNECTION, text, "when one of them is settled", bar)
    if link.credit <= 0 and node.queue.ready > 0:
        text = f"its client gave no credit, {node.queue.ready:,} messages are ready"
        return _Reason(CREDIT, text, "when the client gives credit", Bar(CREDIT, node.queue.ready))
    return None


def _node_reason(node: Node, held_by: str) -> _Reason:
    for part, gate in _gates(node):
        if gate.closed:
            return _closed(part, gate, held_by)
    return _Reason(
        NOTHING, f"{node.kind} '{node.name}' is open, {_state(node)}", "", _bar_of(node.gate, COUNT)
    )


def _state(node: Node) -> str:
    """What stands behind an open gate."""
    gate = node.gate
    if node.is_topic:
        return f"it has {len(node.subscriptions)} subscriptions"
    if not gate.enforced:
        return f"flow control is not enforced, {gate.depth_msgs:,} messages queued"
    texts = [_room_text(bar) for setting in (COUNT, SIZE) if (bar := _bar_of(gate, setting)).stop]
    return ", ".join(texts) or f"it has no thresholds, {gate.depth_msgs:,} messages queued"


def _room_text(bar: Bar) -> str:
    return f"{_filled(bar)} ({bar.setting})"


def _eta_text(reason: _Reason) -> str:
    return "" if reason.eta_s is None else f", in about {span(reason.eta_s)} at the present rate"
