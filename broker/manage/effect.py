"""The effect that a change of a node's settings would have, worked out on a copy of its gate."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from broker.config.node import NodeSettings
from broker.engine.node import Node
from broker.engine.topology import would_enforce
from broker.flow.gate import Gate

COPIED = (
    *("enforced", "held", "full", "closed", "stop_msgs", "resume_msgs", "stop_bytes", "resume_bytes"),
    *("strict_bytes", "depth_msgs", "depth_bytes", "promised_msgs", "promised_bytes", "typical_bytes"),
)


@dataclass(frozen=True, slots=True)
class Effect:
    """A gate is `open` or `stopped`; ``revoked_msgs`` is the credit that producers would lose."""

    name: str
    settings_before: dict[str, object]
    settings_after: dict[str, object]
    changed: tuple[str, ...]
    gate_before: str
    gate_after: str
    depth_msgs: int
    depth_bytes: int
    promised_msgs: int
    revoked_msgs: int


def effect(node: Node, after: NodeSettings, flow_control: bool) -> Effect:
    """Work out what the node would be with these settings; ``flow_control`` is the broker's own switch."""
    assert node.settings is not None
    old, new = asdict(node.settings), asdict(after)
    tried = _tried(node, after, flow_control)
    # A topic's publishers are held by its subscriptions, whose settings follow from more than this.
    closed = any(part.gate.closed for part in (node, *node.subscriptions))
    return Effect(
        name=node.name,
        settings_before=old,
        settings_after=new,
        changed=tuple(name for name in old if old[name] != new[name]),
        gate_before="stopped" if closed else "open",
        gate_after=("stopped" if closed else "open") if node.is_topic else tried.state,
        depth_msgs=node.gate.depth_msgs,
        depth_bytes=node.gate.depth_bytes,
        promised_msgs=node.gate.promised_msgs,
        revoked_msgs=0 if node.is_topic else tried.excess_msgs(),
    )


def _tried(node: Node, after: NodeSettings, flow_control: bool) -> Gate:
    tried = Gate(node.name)
    for name in COPIED:
        setattr(tried, name, getattr(node.gate, name))
    strict = after.max_message_size if after.byte_reservation == "strict" else 0
    if not node.is_topic:
        tried.configure(
            after.flow_stop_count,
            after.flow_resume_count,
            after.flow_stop_size,
            after.flow_resume_size,
            strict,
            0,
        )
    tried.enforce(would_enforce(node, after, flow_control), 0)
    return tried
