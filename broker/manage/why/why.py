"""Why a link waits, in one sentence each: which node, which threshold, since when, what frees it and when.

Pure: it reads gates and link views and is told the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from broker.engine.node import Node
from broker.manage.views import ConsumerView, ProducerView
from broker.manage.why.cause import COUNT, SIZE, GateCause
from broker.manage.why.consumer import is_held_up
from broker.manage.why.consumer import of_consumer as consumer_reason
from broker.manage.why.delays import sentence_of
from broker.manage.why.last_values import sentence_of as sentence_on_values
from broker.manage.why.producer import (
    TRANSACTION,
    WhyContext,
    ended,
    gate_bar,
    of_gates,
    refusal,
    terms,
    window_of,
)
from broker.manage.why.producer import of_producer as producer_reason
from broker.manage.why.reason import Reason, about, eta_text, filled, messages, span
from broker.units import SECOND_NS

__all__ = ["Why", "about", "merged", "of_consumer", "of_node", "of_producer", "of_transactions", "span"]

NOTHING = "nothing"
# A transaction that is open for so long is told of though nobody waits for it.
LONG_S = 1.0


@dataclass(frozen=True, slots=True)
class Why:
    """One answer. ``subject`` is producer, consumer or node; ``eta_s`` is None where nobody can tell, and
    ``eta_error`` is how far such forecasts were off lately, as a part of what came true. ``terms`` are the
    numbers whose least is a producer's further credit (``producer.terms``), and ``window`` says where its
    window comes from.
    """

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
    eta_error: float | None = None
    window: str = ""
    terms: list[dict[str, str | int | None]] = field(default_factory=list)


def of_producer(link: ProducerView, node: Node, around: WhyContext) -> Why:
    """Why a producer link may not send, or that it may."""
    if not link.lacks_credit:
        text = f"it has {link.credit:,} credits of a window of {link.window:,}"
        if link.credit > link.window:
            text = f"it has {link.credit:,} credits, and a window of {link.window:,} now, since it lay idle"
        reason = Reason(NOTHING, text, "", gate_bar(node.gate, COUNT))
        may = f"may send{_cell(link, 'to')}"
        return _with_credit(_answer("producer", link, node, reason, may), link, node)
    reason = producer_reason(link, node, around)
    reason = replace(reason, frees=reason.frees + refusal(link, node))
    waits = f"has no credit{_cell(link, 'from')}"
    if link.parked:
        waits = f"has {link.parked:,} unsettled messages parked{_cell(link, 'in')}"
    since_ns = link.blocked_since_ns or link.last_used_ns
    answer = _since(around.now_ns, since_ns, "producer", link, node, reason, waits)
    more = sentence_of(node, around.now_ns) + sentence_on_values(node)
    return _with_credit(replace(answer, sentence=answer.sentence + more), link, node)


def _with_credit(answer: Why, link: ProducerView, node: Node) -> Why:
    return replace(answer, window=window_of(link), terms=terms(link, node))


def of_consumer(
    link: ConsumerView,
    node: Node,
    siblings: list[ConsumerView],
    around: WhyContext,
    is_noted: bool,
    *,
    idle: bool,
) -> Why | None:
    """Why a consumer link is sent nothing; None, unless ``idle`` ones are asked for too, if it is merely
    waiting for messages.
    """
    suspended = around.suspended if node.shelf is not None else ""
    reason = consumer_reason(link, node, siblings, around.winding_down, suspended, is_noted, around.now_ns)
    if not idle and not is_held_up(reason, link, node):
        return None
    since_ns = link.served_ns or link.attached_ns
    waits = f"is sent nothing{_cell(link, 'by')}"
    return _since(around.now_ns, since_ns, "consumer", link, node, reason, waits)


def of_node(node: Node, around: WhyContext) -> Why:
    """A node at which no link waits."""
    reason = of_gates(node, around)
    if reason is None:
        text = f"{node.kind} '{node.name}' is open, {_state(node)}"
        reason = Reason(NOTHING, text, "", gate_bar(node.gate, COUNT))
    stopped = [part.gate.closed_since_ns for part in (node, *node.subscriptions) if part.gate.closed]
    since = f", for {span((around.now_ns - min(stopped)) / SECOND_NS)} now" if stopped else ""
    sentence = f"{reason.text}{since}; no producer waits and no consumer is shut."
    if reason.frees:
        sentence += f" It opens {reason.frees}{eta_text(reason)}."
    sentence += sentence_of(node, around.now_ns) + sentence_on_values(node)
    return _why("node", node, reason, sentence)


def of_transactions(node: Node, around: WhyContext) -> list[Why]:
    """Messages of a node that open transactions hold, longer than such a thing takes."""
    kept = around.uncommitted
    open_s = (around.now_ns - kept.began_ns) / SECOND_NS
    if not kept.began_ns or open_s < LONG_S:
        return []
    held = kept.posted_msgs + kept.retired_msgs
    text = (
        f"open transactions hold {messages(held)} of {node.kind} '{node.name}'"
        f" ({kept.posted_msgs:,} posted, {kept.retired_msgs:,} taken), the oldest for {span(open_s)}"
    )
    reason = Reason(TRANSACTION, text, ended(kept, around.now_ns), gate_bar(node.gate, COUNT))
    return [_why("node", node, reason, f"{text}; that ends {reason.frees}.")]


def merged(answers: Iterable[Why]) -> list[Why]:
    """One answer a link: of a link that waits at several nodes, the one it has waited at longest."""
    by_link: dict[str, list[Why]] = {}
    for answer in answers:
        by_link.setdefault(answer.link_id, []).append(answer)
    found: list[Why] = []
    for each in by_link.values():
        first = max(each, key=lambda answer: (answer.cause != NOTHING, answer.blocked_s or 0.0))
        others = sum(answer.cause != NOTHING for answer in each) - 1
        more = f" It waits at {others:,} more nodes." if others > 0 else ""
        found.append(replace(first, sentence=first.sentence + more))
    return found


def _cell(link: ProducerView | ConsumerView, word: str) -> str:
    """Return this cell, where the link's client is connected to another one; '' where it is here."""
    return "" if link.passed_to < 0 else f" {word} cell {link.passed_to}"


def _since(
    now_ns: int,
    since_ns: int,
    subject: str,
    link: ProducerView | ConsumerView,
    node: Node,
    reason: Reason,
    waits: str,
) -> Why:
    if not since_ns:
        return _answer(subject, link, node, reason, waits)
    blocked_s = (now_ns - since_ns) / SECOND_NS
    return _answer(subject, link, node, reason, f"{waits}, for {span(blocked_s)} now", blocked_s)


def _answer(
    subject: str,
    link: ProducerView | ConsumerView,
    node: Node,
    reason: Reason,
    waits: str,
    blocked_s: float | None = None,
) -> Why:
    who = f"{subject} link '{link.link}' of '{link.container}' ({link.peer})"
    goes_on = f"; it goes on {reason.frees}{eta_text(reason)}" if reason.frees else ""
    sentence = f"{who} at '{node.name}' {waits}: {reason.text}{goes_on}."
    return replace(
        _why(subject, node, reason, sentence),
        link=link.link,
        link_id=link.id,
        container=link.container,
        peer=link.peer,
        blocked_s=blocked_s,
    )


def _why(subject: str, node: Node, reason: Reason, sentence: str) -> Why:
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
        eta_error=reason.error,
    )


def _state(node: Node) -> str:
    """What stands behind an open gate."""
    gate = node.gate
    if node.is_topic:
        return f"it has {len(node.subscriptions)} subscriptions"
    if not gate.enforced:
        return f"flow control is not enforced, {gate.depth_msgs:,} messages queued"
    texts = [_room_text(bar) for setting in (COUNT, SIZE) if (bar := gate_bar(gate, setting)).stop]
    return ", ".join(texts) or f"it has no thresholds, {gate.depth_msgs:,} messages queued"


def _room_text(bar: GateCause) -> str:
    return f"{filled(bar)} ({bar.setting})"
