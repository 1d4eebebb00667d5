"""What keeps a producer link without credit: a threshold, an operator, a budget, the disk, other links.

Read in the order in which they count: what is asked first would hold the link back even if all that
follows were gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from broker import constants
from broker.engine.node import Node
from broker.engine.transactions import Uncommitted
from broker.flow.gate import Gate
from broker.flow.producer_credit import IDLE_NS, PROBE_NS
from broker.manage.views import ProducerView
from broker.manage.why.cause import COUNT, OPERATOR, SIZE, GateCause, bars, budgets
from broker.manage.why.deadlocks import DeadlockView
from broker.manage.why.forecasts import Forecasts
from broker.manage.why.reason import Reason, about, filled, messages, quantity, span, suspension
from broker.units import SECOND_NS

# What a link waits for, beyond the settings that bars name.
RESERVE = "priority_reserve"  # what room is left is kept for high priorities
PROMISED = "promised"  # the gate is open, but other producers hold its room
TOO_LARGE = "message_size"  # the gate is open, but its messages are larger than the room
TRANSACTION = "transaction"  # messages of open transactions keep its room
TURN = "turn"  # there is room; the next dealing gives it
STORE = "store"  # nothing can be kept on disk
DISK = "disk"  # more waits to be written than should
IDLE = "idle"  # its credit was lent on
DEADLOCK = "deadlock"
SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class WhyContext:
    """What a link's reason may lie in, beyond its node; ``store`` says why nothing can be kept on disk, and
    ``suspended`` why the owner of a replicated cell confirms nothing.
    """

    now_ns: int
    forecasts: Forecasts
    held_by: str = ""
    store: str = ""
    suspended: str = ""
    winding_down: bool = False
    behind_bytes: int = 0
    deadlock: DeadlockView | None = field(default=None)
    uncommitted: Uncommitted = field(default=Uncommitted())


def of_producer(link: ProducerView, node: Node, around: WhyContext) -> Reason:
    """The one thing that keeps it from sending."""
    if around.winding_down:
        text = "the broker is shutting down and takes no more"
        return Reason(SHUTDOWN, text, "after a restart", GateCause(SHUTDOWN))
    return (
        _of_the_connection(link)
        or of_gates(node, around)
        or _of_budgets(link, node, around)
        or _of_the_link(link, node, around)
        or _of_the_disk(node, around)
        or Reason(TURN, "there is room", "with the next dealing of credit", GateCause(TURN))
    )


def of_gates(node: Node, around: WhyContext) -> Reason | None:
    """A stopped gate; of several (a topic's subscriptions) the one that opens last."""
    stopped = [_closed(part, gate, around) for part, gate in _gates(node) if gate.closed]
    if not stopped:
        return None
    operators = [reason for reason in stopped if reason.cause == OPERATOR]
    last = operators[0] if operators else max(stopped, key=_how_long)
    if around.deadlock is not None and last.cause != OPERATOR:
        circle = f"{last.text}, in a deadlock: {around.deadlock.sentence}"
        frees = "when one of these connections settles, or one of these nodes is given more room"
        return Reason(DEADLOCK, circle, frees, last.bar)
    if len(stopped) == 1 or last.cause == OPERATOR:
        return last
    text = f"{last.text}, and {len(stopped) - 1:,} more of its subscriptions"
    return Reason(last.cause, text, last.frees, last.bar, last.eta_s, last.error)


def gate_bar(gate: Gate, setting: str) -> GateCause:
    """A gate's numbers in one unit, whether or not they stop it."""
    if setting == SIZE:
        return GateCause(SIZE, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
    return GateCause(COUNT, gate.depth_msgs, gate.stop_msgs, gate.resume_msgs)


def _how_long(reason: Reason) -> float:
    return float("inf") if reason.eta_s is None else reason.eta_s


def _gates(node: Node) -> Iterator[tuple[Node, Gate]]:
    """Every gate a message to the node needs room in, and whose it is."""
    yield node, node.gate
    for part in node.subscriptions:
        if node.heeds(part):
            yield part, part.gate
    for each in (node, *node.subscriptions):
        for bridge in each.bridges:
            yield from ((taker, taker.gate) for owner, taker in bridge.coupled if owner is node)


def _closed(node: Node, gate: Gate, around: WhyContext) -> Reason:
    found = bars(gate)
    thresholds = [bar for bar in found if bar.setting != OPERATOR]
    causes = " and ".join(_bar_text(bar, around.held_by) for bar in found)
    name = f"{node.kind} '{node.name}'"
    if gate.held or not thresholds:
        after = f" and {_below(thresholds)}" if thresholds else ""
        frees = f"when an operator starts producers again{after}"
        return Reason(
            OPERATOR, f"{name} is stopped by {causes}", frees, found[0] if found else GateCause(OPERATOR)
        )
    eta_s = around.forecasts.of_node(node)
    text = f"{name} is stopped by {causes}" + (_standstill(node) if eta_s is None else "") + _slowest(node)
    bar = max(thresholds, key=lambda bar: bar.excess / max(bar.stop, 1))
    return Reason(bar.setting, text, _below(thresholds), bar, eta_s, around.forecasts.error_of(gate))


def _slowest(node: Node) -> str:
    """Say which reader of a stream holds its producers up."""
    if node.stream is None:
        return ""
    readers = node.stream.named.by_name.values()
    slowest = min(readers, key=lambda each: each.stored, default=None)
    if slowest is None:
        return ""
    absent = "" if slowest.link is not None else ", for which no link reads"
    return f": reader '{slowest.name}' is the furthest behind{absent}"


def _bar_text(bar: GateCause, held_by: str) -> str:
    if bar.setting == OPERATOR:
        return f"an operator (producers stopped for '{held_by}')" if held_by else "an operator"
    return f"{bar.setting} ({filled(bar)})"


def _below(thresholds: Iterable[GateCause]) -> str:
    words = [
        f"below {bar.setting.replace('stop', 'resume')} {quantity(bar.setting, bar.resume)}"
        f" ({quantity(bar.setting, bar.excess)} to go)"
        for bar in thresholds
        if bar.excess
    ]
    return "when the depth is " + " and ".join(words) if words else "when a message leaves it"


def _standstill(node: Node) -> str:
    if node.stream is not None:
        return ""
    return ", nothing leaves it" + ("" if node.consumers else " and it has no consumer")


def _of_the_connection(link: ProducerView) -> Reason | None:
    bar = link.connection_bar
    if bar is None:
        return None
    text = (
        f"its connection's {bar.setting} is used up: {about(bar.depth)} of {about(bar.stop)} promised to its"
        " links or parked"
    )
    return Reason(bar.setting, text, "when its links use what they have, or lose it for lying idle", bar)


def _of_budgets(link: ProducerView, node: Node, around: WhyContext) -> Reason | None:
    for gate in budgets(node):
        if gate.held:
            return _unwritable(gate, around)
    for gate in budgets(node):
        # In all its copies: a message that comes to many nodes may have no room where one of them has.
        taken = max(owner.allocator.takes(gate, link.reserve_bytes) for owner in node.owners())
        if gate.room(max(taken, link.reserve_bytes)) == 0:
            return _spent(gate, around)
    return None


def _unwritable(gate: Gate, around: WhyContext) -> Reason:
    cause = GateCause(STORE, gate.depth_bytes, gate.stop_bytes)
    if around.suspended:
        return suspension(STORE, around.suspended, cause)
    text = f"nothing can be kept on disk ({around.store or 'the store says why'})"
    return Reason(STORE, text, "when the store writes again", cause)


def _spent(gate: Gate, around: WhyContext) -> Reason:
    """A budget over all nodes has no room, though this node has."""
    bar = GateCause(gate.name, gate.depth_bytes, gate.stop_bytes, gate.resume_bytes)
    text = (
        f"the broker's {gate.name} is used up: {about(gate.depth_bytes)} of {about(gate.stop_bytes)} taken"
        f" and {about(gate.promised_bytes)} promised, over all queues"
    )
    eta_s = around.forecasts.of_budget(gate) if gate.closed else None
    error = around.forecasts.error_of(gate)
    return Reason(gate.name, text, "when messages leave, here or elsewhere", bar, eta_s, error)


def _of_the_link(link: ProducerView, node: Node, around: WhyContext) -> Reason | None:
    """Gates and budgets are open: what others were promised, or what this link did with its own."""
    for part, gate in _gates(node):
        is_urgent = link.account is not None and link.account.urgent
        if gate.whole_room(link.reserve_bytes) == 0:
            return _uncommitted(part, gate, around) or _crowded(link, part, gate)
        if gate.room(link.reserve_bytes) == 0 and not is_urgent:
            return _reserved(part, gate)
    if link.resting:
        text = f"its credit was taken back after it had lain idle for {IDLE_NS // 1_000_000} ms"
        frees = f"when its turn comes to be tried again, every {PROBE_NS // 1_000_000} ms"
        return Reason(IDLE, text, frees, gate_bar(node.gate, COUNT))
    return None


def _uncommitted(node: Node, gate: Gate, around: WhyContext) -> Reason | None:
    """The gate is open, and messages of open transactions keep more of its room than credit does."""
    kept = around.uncommitted
    if 2 * kept.posted_msgs <= gate.promised_msgs:
        return None
    text = (
        f"{node.kind} '{node.name}' is open, but {messages(kept.posted_msgs)} of open transactions keep its"
        f" room, the oldest for {span((around.now_ns - kept.began_ns) / SECOND_NS)}"
    )
    return Reason(TRANSACTION, text, ended(kept, around.now_ns), gate_bar(gate, COUNT))


def ended(kept: Uncommitted, now_ns: int) -> str:
    """When messages of open transactions come free: a part of ``frees``."""
    if not kept.deadline_ns:
        return "when they are committed or rolled back"
    left_s = max(kept.deadline_ns - now_ns, 0) / SECOND_NS
    return f"when they are committed or rolled back, which the oldest is in {span(left_s)} at the latest"


def _reserved(node: Node, gate: Gate) -> Reason:
    """The gate is open, and the room that is left is kept for producers of high priorities."""
    setting = COUNT if gate.reserve_msgs else SIZE
    bar = gate_bar(gate, setting)
    kept = gate.reserve_msgs if gate.reserve_msgs else gate.reserve_bytes
    text = (
        f"{node.kind} '{node.name}' is open, but of its {setting} {quantity(setting, bar.stop)} the last"
        f" {quantity(setting, kept)} are kept for messages from priority {node.reserve_from} on"
        f" ({RESERVE}), and the rest is queued or promised"
    )
    frees = "when messages leave; a sender that states its priority (sluice:priority) may use what is kept"
    return Reason(RESERVE, text, frees, bar)


def _crowded(link: ProducerView, node: Node, gate: Gate) -> Reason:
    """The gate is open and yet holds no room for this link."""
    left = gate.stop_bytes - gate.depth_bytes - gate.promised_bytes
    too_large = gate.stop_bytes > 0 and left < link.reserve_bytes
    name = f"{node.kind} '{node.name}'"
    if too_large and gate.room(1) > 0:
        bar = gate_bar(gate, SIZE)
        text = (
            f"{name} is open, but its messages of about {about(link.reserve_bytes)} are larger than"
            f" the {about(max(left, 0))} left below flow_stop_size {about(gate.stop_bytes)}"
        )
        return Reason(TOO_LARGE, text, f"when so much has left, or '{node.name}' is empty", bar)
    setting = SIZE if too_large else COUNT
    bar = gate_bar(gate, setting)
    text = (
        f"{name} is open, but its room is promised to other producers:"
        f" {quantity(setting, bar.depth)} queued and {gate.promised_msgs:,} credits"
        f" reach {setting} {quantity(setting, bar.stop)}"
    )
    frees = f"when they use it, or hold more than their share (looked at every {IDLE_NS // 1_000_000} ms)"
    return Reason(PROMISED, text, frees, bar)


def _of_the_disk(node: Node, around: WhyContext) -> Reason | None:
    if around.behind_bytes == 0 or all(part.shelf is None for part in (node, *node.subscriptions)):
        return None
    text = f"the disk is behind: {about(around.behind_bytes)} wait to be written"
    return Reason(DISK, text, "when the disk has caught up", GateCause(DISK, around.behind_bytes))


def terms(link: ProducerView, node: Node) -> list[dict[str, str | int | None]]:
    """Return the terms whose least is the credit the link would get now (the formula in flow/allocator.py).

    Each has its ``name``, the credits (``msgs``) it leaves the link, None without a limit, and the ``gate``
    whose room it is.
    """
    if link.account is None or link.account.closed:
        return []
    return [
        {
            "name": term.name,
            "msgs": None if term.msgs == constants.UNBOUNDED else term.msgs,
            "gate": term.gate,
        }
        for term in node.allocator.terms(link.account)
    ]


def window_of(link: ProducerView) -> str:
    """Return a sentence on where the link's window comes from; empty where it has none."""
    account = link.account
    if account is None or account.closed or account.window_max == 0:
        return ""
    began = "its initial_credit"
    if account.sharers == 1:
        began = "flow_stop_count"
    elif account.sharers:
        began = f"flow_stop_count divided by the {account.sharers:,} links there were"
    return (
        f"Its window is {account.window:,}: it began at {account.began:,}, {began}; it doubles, to"
        f" {account.window_max:,} at most, each time half of it is used, and falls when it lies idle."
    )


def refusal(link: ProducerView, node: Node) -> str:
    """What else may become of a parked message: a part of ``frees``, empty for nothing."""
    if node.hot.when_full != constants.FULL_REJECT_AFTER or link.window or not link.parked or link.presettled:
        return ""
    return f", or its messages are rejected {span(node.settings.reject_after_ms / 1000)} after they came"
