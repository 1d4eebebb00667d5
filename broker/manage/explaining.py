"""Settings explained: those that hold at an address, and the effect that a change would have at its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from broker.config.node import NodeSettings
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.engine.topology import has_takers
from broker.flow.gate import Gate
from broker.manage.holds import ProducerHolds
from broker.manage.names import check_name
from broker.manage.nodes import Nodes
from broker.manage.policies import Policies

COPIED = (
    *("enforced", "held", "full", "closed", "stop_msgs", "resume_msgs", "stop_bytes", "resume_bytes"),
    *("strict_bytes", "depth_msgs", "depth_bytes", "promised_msgs", "promised_bytes", "typical_bytes"),
)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One effective setting and where its value comes from: file:line:column, or why it is so."""

    name: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The settings that hold at an address, whether or not its node exists yet."""

    address: str
    kind: str
    exists: bool
    auto_create: bool
    held_by: str
    settings: tuple[EffectiveSetting, ...]


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


class Explanations:
    """Explains settings; nothing is changed."""

    def __init__(self, engine: Engine, policies: Policies, nodes: Nodes, holds: ProducerHolds) -> None:
        self._engine = engine
        self._policies = policies
        self._nodes = nodes
        self._holds = holds

    def explain(self, address: str) -> Explanation:
        """Return every setting at an address, its effective value and where it comes from."""
        policies = self._policies
        wanted = policies.subscriptions.wanted(address)
        node = self._engine.topology.nodes.get(address)
        if wanted is not None:
            effective = policies.standing_subscription(wanted)
        else:
            check_name(address)
            effective = policies.at(address, {}) if node is None else policies.standing(node)
        found = effective.settings
        return Explanation(
            address=address,
            kind=found.kind if wanted is None else "subscription",
            exists=node is not None or wanted is not None,
            auto_create=effective.auto_create,
            held_by=self._holds.holding(address),
            settings=tuple(
                EffectiveSetting(row.name, getattr(found, row.name), effective.origins[row.name])
                for row in fields(NodeSettings)
            ),
        )

    def effect(self, name: str, arguments: Mapping[str, object]) -> Effect:
        """Work out an ``update`` of the node, and refuse as it does; nothing is changed."""
        node, _, effective = self._nodes.planned(name, arguments)
        return effect(node, effective.settings, self._engine.topology.flow_control)


def effect(node: Node, after: NodeSettings, flow_control: bool) -> Effect:
    """Work out what the node would be with these settings; ``flow_control`` is the broker's own switch."""
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
    tried.enforce(flow_control and after.enforces(node.is_subscription, has_takers(node)), 0)
    return tried
