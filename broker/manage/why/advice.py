"""Which settings of a node work badly as it is used now, for whoever asks why its links wait."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.node import Node
from broker.flow.advice import Advice, of_budget, of_resume, of_stop, of_window
from broker.flow.gate import Gate
from broker.manage.views import ConsumerView
from broker.manage.why.reason import about
from broker.manage.why.why import Why

ADVICE = "advice"
SECOND_NS = 1_000_000_000


def of_node(node: Node, consumers: list[ConsumerView], memory: Gate, now_ns: int) -> list[Why]:
    """One answer for each setting that should be another one; none for a node that does well."""
    found = [each for each in _advice(node, consumers, memory, now_ns) if each is not None]
    return [_answer(node, each) for each in found]


def _advice(node: Node, consumers: list[ConsumerView], memory: Gate, now_ns: int) -> Iterator[Advice | None]:
    gate = node.gate
    if gate.enforced and not node.is_topic:
        stopped_ns = gate.closed_total_ns + (now_ns - gate.closed_since_ns if gate.closed else 0)
        stopped_s = stopped_ns / SECOND_NS
        yield of_resume("count", gate.stop_msgs, gate.resume_msgs, gate.closed_count, stopped_s)
        yield of_resume("size", gate.stop_bytes, gate.resume_bytes, gate.closed_count, stopped_s)
        yield of_stop(gate.stop_msgs, _producers(node))
        if not node.origins.get("flow_stop_size", "default").startswith("default"):
            yield of_budget(gate.stop_bytes, memory.stop_bytes)
    if node.queue.ready > 0:
        yield _of_windows(consumers)


def _producers(node: Node) -> int:
    """How many links' credit is promised against its gate."""
    owners = {id(owner): owner for owner in node.owners()}.values()
    return sum(account.window_max > 0 for owner in owners for account in owner.allocator.accounts)


def _of_windows(consumers: list[ConsumerView]) -> Advice | None:
    """Of the consumers whose windows are too small the one that would take most."""
    found = [
        of_window(
            link.window_limit,
            link.credit + link.unsettled,
            link.settled,
            link.shut_count,
            link.settle_rate,
        )
        for link in consumers
        if link.active and not link.browses and not link.presettled
    ]
    return max(filter(None, found), key=lambda each: each.number, default=None)


def _answer(node: Node, advice: Advice) -> Why:
    number = about(advice.number) if advice.setting.endswith("_size") else f"{advice.number:,}"
    todo = f"set {advice.setting} to {number}"
    return Why(
        subject="node",
        node=node.name,
        cause=ADVICE,
        depth=node.gate.depth_msgs,
        threshold=advice.now,
        resume=advice.number,
        eta_s=None,
        frees=todo,
        sentence=f"advice for '{node.name}': {advice.reason}; {todo}.",
    )
