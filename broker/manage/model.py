"""Every command an operator or a client's attach can give, in one place; AMQP, HTTP and the command
line translate to it and decide nothing themselves.

All verbs run on the thread that owns the engine, within a turn; the caller ends the turn, so that
credit given or taken back by a command goes out. A refused command changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path

from broker.engine import SECOND_NS, Engine
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.flow.limits import BrokerDefaults, NodeSettings, from_arguments
from broker.flow.vocabulary import ARGUMENTS
from broker.manage import why as reasons
from broker.manage.bridges import DefinedBridges
from broker.manage.conduits import ChannelView, RouteView
from broker.manage.definitions import Definition
from broker.manage.entities import Entities, Page
from broker.manage.holds import EVERYTHING, Holds, matches, parsed
from broker.manage.names import check_name
from broker.manage.process import Process
from broker.manage.subscriptions import Subscriptions, is_pattern, is_subscription
from broker.manage.totals import Totals
from broker.manage.views import (
    BrokerView,
    Browsed,
    BrowsedMessage,
    ConsumerView,
    Links,
    ProducerView,
    QueueView,
    Snapshot,
    StoreView,
    browsed,
    queue_view,
    waiting_msgs,
)
from broker.manage.why import Why
from broker.node import Node
from broker.policy.effective import CAPABILITY, Effective, PolicySet
from broker.policy.load import parse_policies
from broker.storage import WRITING, Shelf


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective setting and where its value comes from: file:line:column, or why it is so."""

    name: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What holds at an address, whether or not its node exists yet."""

    address: str
    kind: str
    exists: bool
    auto_create: bool
    held_by: str
    settings: tuple[Setting, ...]


# An answer with messages is encoded and kept in memory until it is read.
BROWSE_BYTES = 1 << 19

# The store's note of the operators' holds.
HOLDS = "holds"


def _ignore(node: Node) -> None:
    """No room that knows the wire is interested."""


class Backup:
    """One backup; ``finish`` may be called on any thread."""

    def __init__(self) -> None:
        self.done = False
        self.fault: Exception | None = None

    def finish(self, fault: Exception | None) -> None:
        """It is complete, or it failed."""
        self.fault = fault
        self.done = True


class Model:
    """An engine, its policies and the links on it, under the verbs that operators know.

    ``on_delete`` is told of each node and subscription that went, to detach its links; ``on_change``
    of each that has new settings, to give consumers their new windows. ``on_reload`` reads
    the broker's files anew and applies them. ``on_create`` is told of each
    queue and topic that came to be. ``routes`` and ``channels`` show those there are.
    """

    def __init__(
        self,
        engine: Engine,
        policies: PolicySet,
        defaults: BrokerDefaults,
        links: Links,
        process: Process | None = None,
        holds: Holds | None = None,
        auto_create: bool = True,
    ) -> None:
        self.engine = engine
        self.policies = policies
        self.defaults = defaults
        self.links = links
        self.process = process or Process()
        self.holds = holds or Holds()
        self.auto_create = auto_create
        self.on_delete: Callable[[Node], None] = _ignore
        self.on_change: Callable[[Node], None] = _ignore
        self.on_create: Callable[[Node], None] = _ignore
        self.on_reload: Callable[[], list[str]] | None = None
        self.on_backup: Callable[[Path, Callable[[Exception | None], None]], None] | None = None
        self._backup: Backup | None = None
        self.subscriptions = Subscriptions(
            engine, self._topic, self._pattern_settings, self._subscription_gone
        )
        self.bridges = DefinedBridges(engine, self.resolve)
        self.routes: Callable[[], Sequence[RouteView]] = tuple
        self.channels: Callable[[], Sequence[ChannelView]] = tuple
        self._totals = Totals()
        others: dict[str, Callable[[], Iterable[object]]] = {
            "bridge": self.bridges.views,
            "route": lambda: self.routes(),
            "channel": lambda: self.channels(),
        }
        self._entities = Entities(engine, links, self.holds, self.process.epoch_ns, self.broker, others)

    # --- nodes

    def resolve(self, address: str, wanted_kind: str | None = None) -> Node:
        """The node at an address, created if a policy allows it.

        Its kind is the policy's, else the one that is wanted, else queue.
        """
        node = self.engine.nodes.get(address)
        if node is not None:
            return node
        if address.startswith("$"):
            raise NotFoundError(f"no node '{address}': names that start with '$' are the broker's own")
        _check_new(address)
        effective = self._effective(address, {}, wanted_kind or "")
        if not effective.auto_create:
            why = effective.origins["auto_create"]
            raise NotFoundError(f"no queue or topic named '{address}', and auto_create is false ({why})")
        return self._add(address, {}, effective)

    def create(
        self, kind: str, name: str, arguments: Mapping[str, object] | None = None, durable: bool | None = None
    ) -> Node:
        """A new queue or topic; ``arguments`` in our words or Qpid's stand above every policy."""
        _check_new(name)
        if name in self.engine.nodes:
            raise ConflictError(f"'{name}' exists already")
        explicit = from_arguments(arguments or {})
        if explicit.setdefault("kind", kind) != kind:
            raise OperatorError(f"kind {explicit['kind']!r} contradicts the type {kind!r}")
        if durable is not None:
            explicit["durable"] = durable
        return self._add(name, explicit, self._effective(name, explicit))

    def restore(self, name: str, definition: bytes, shelf: Shelf) -> Node:
        """A durable node as it was before the restart, empty. OperatorError if policies contradict it."""
        if is_subscription(definition):
            return self.subscriptions.restore(definition, name, shelf)
        known = Definition.decode(name, definition)
        effective = self._effective(name, known.arguments, known.capability)
        if effective.settings.kind != known.kind:
            raise OperatorError(
                f"'{name}' was a {known.kind} before the restart and can't become a {effective.settings.kind}"
                f" ({effective.origins['kind']})"
            )
        return self._add(name, dict(known.arguments), effective, shelf)

    def restore_holds(self, rules: bytes) -> None:
        """The operators' holds as they were before the restart."""
        for pattern, held in json.loads(rules) if rules else []:
            self.holds.put(str(pattern), bool(held))

    def update(self, name: str, arguments: Mapping[str, object]) -> Node:
        """Change settings at runtime; None takes an argument back, so that the policy's holds again."""
        node = self.engine.node(name)
        explicit = {**node.arguments, **from_arguments(_without_none(arguments))}
        for key in arguments.keys() - _without_none(arguments).keys():
            if explicit.pop(ARGUMENTS.get(key, key), None) is None:
                raise OperatorError(f"'{name}' has no argument {key!r} to take back")
        effective = self._effective(name, explicit, _capability(node))
        self._change(node, explicit, effective)
        return node

    def delete(self, name: str) -> Node:
        """Remove a queue, a topic with its subscriptions, or one subscription; with all its messages."""
        node = self.find(name)
        gone = [*(each for each in node.subscriptions if each.is_subscription), node]
        for each in gone:
            self._totals.retire(each)
        if node.is_subscription:
            self.engine.unsubscribe(node)
        else:
            self.engine.delete(name)
        for each in gone:
            if each.deleted:
                self.subscriptions.forget(each)
                self.bridges.node_gone(each)
                self.on_delete(each)
        return node

    def purge(self, name: str, dry_run: bool = False) -> int:
        """Drop every message of a queue, or of a topic's subscriptions, that no consumer holds; how many.

        With ``dry_run`` they are only counted.
        """
        node = self.find(name)
        if dry_run:
            return sum(waiting_msgs(each) for each in (node, *node.subscriptions))
        return sum(self.engine.purge(each) for each in (node, *node.subscriptions))

    def move(self, source: str, target: str, count: int = 0, dry_run: bool = False) -> int:
        """Move the oldest messages of a queue to another as that has room; how many will go. 0 is all."""
        here, there = self.find(source), self.resolve(target)
        if here is there:
            raise OperatorError(f"'{source}' is both source and target")
        if here.is_topic:
            raise OperatorError(f"'{source}' is a topic: move the messages of one of its subscriptions")
        count = min(count or waiting_msgs(here), waiting_msgs(here))
        return count if dry_run else self.engine.move(here, there, count)

    def browse(self, name: str, offset: int = 0, count: int = 20) -> Browsed:
        """The oldest messages of a queue that are in memory, as they are; up to ``BROWSE_BYTES`` of them."""
        node = self.find(name)
        found: list[BrowsedMessage] = []
        nbytes = 0
        for entry in islice(node.queue, offset, offset + count):
            nbytes += len(entry.data)
            if found and nbytes > BROWSE_BYTES:
                break
            found.append(browsed(entry))
        return Browsed(tuple(found), 0 if node.spool is None else node.spool.count)

    def bind(self, source: str, target: str) -> None:
        """Not available yet."""
        raise OperatorError("bindings are not available yet: subscribe to the topic itself")

    unbind = bind

    def find(self, name: str) -> Node:
        """A queue, topic or subscription that exists."""
        node = self.engine.nodes.get(name) or self.engine.subscriptions.get(name)
        if node is None:
            raise NotFoundError(f"no queue, topic or subscription named '{name}'")
        return node

    # --- operators

    def hold(self, target: str | None, held: bool) -> list[str]:
        """Stop (or start again) the producers of a node, of a pattern, or of all: the nodes concerned.

        It holds for nodes to come as well, until it is lifted.
        """
        wanted = target or EVERYTHING
        pattern = parsed(wanted)
        self.holds.put(wanted, held)
        self.engine.note(HOLDS, json.dumps(self.holds.rules).encode() if self.holds.rules else b"")
        nodes = [node for node in self.engine.nodes.values() if matches(wanted, pattern, node.name)]
        for node in nodes:
            self._hold(node)
        return [node.name for node in nodes if not _is_own(node)]

    def apply(self, policies: PolicySet, defaults: BrokerDefaults | None = None) -> list[str]:
        """New policies for every node, those that exist included: the names of those that changed.

        OperatorError, with every reason, if one of the nodes can't follow; then the old ones stand.
        """
        wanted = defaults or self.defaults
        effective, problems = self._plan(policies, wanted)
        if problems:
            raise OperatorError("\n".join(problems))
        self.policies, self.defaults = policies, wanted
        changed = []
        for node, each in effective:
            if each.settings != node.settings:
                self._change(node, node.arguments, each)
                changed.append(node.name)
            node.origins = dict(each.origins)
        self.subscriptions.resettle()
        return changed

    def apply_text(self, text: str, file: str) -> list[str]:
        """Policies from a text in hand: they replace those of the same patterns, the others stay.

        They hold until the policy files are read again. ConfigError with all that is wrong in them.
        """
        given = parse_policies(text, file)
        patterns = {policy.pattern.text for policy in given.policies}
        kept = [policy for policy in self.policies.policies if policy.pattern.text not in patterns]
        return self.apply(PolicySet.of([*kept, *given.policies]))

    def reload(self) -> list[str]:
        """Read settings and policies again and apply them: the names of the nodes that changed."""
        if self.on_reload is None:
            raise OperatorError("this broker was started without files to read again; name a file to apply")
        return self.on_reload()

    def backup(self, target: str) -> None:
        """Begin to copy the data directory to a new one; ``backup_done`` says when it is there."""
        if self.on_backup is None:
            raise OperatorError("this broker keeps nothing on disk")
        path = Path(target)
        if path.exists():
            raise OperatorError(f"{target} exists already")
        if self._backup is not None and not self._backup.done:
            raise ConflictError("a backup is under way")
        self._backup = backup = Backup()
        self.on_backup(path, backup.finish)

    def backup_done(self) -> bool:
        """Whether the last backup is complete; OperatorError with the reason if it failed."""
        if self._backup is None:
            raise OperatorError("no backup was begun")
        if self._backup.fault is not None:
            raise OperatorError(f"the backup failed: {self._backup.fault}")
        return self._backup.done

    # --- seeing it

    def explain(self, address: str) -> Explanation:
        """Every setting at an address, its effective value and where it comes from."""
        check_name(address)
        node = self.engine.nodes.get(address)
        effective = self._effective(address, {}) if node is None else self._now(node)
        settings = effective.settings
        return Explanation(
            address=address,
            kind=settings.kind,
            exists=node is not None,
            auto_create=effective.auto_create,
            held_by=self.holds.holding(address),
            settings=tuple(
                Setting(row.name, getattr(settings, row.name), effective.origins[row.name])
                for row in fields(NodeSettings)
            ),
        )

    def why(self, name: str) -> list[Why]:
        """One answer for every blocked producer and shut consumer of a node, or for a link by name or id."""
        try:
            node = self.find(name)
        except NotFoundError:
            return self._why_link(name)
        found = self._why_producers(node) + self._why_consumers(node)
        return found or [reasons.of_node(node, self._held_by(node))]

    def query(
        self, type_: str | None, attribute_names: Sequence[str] = (), offset: int = 0, count: int = 1000
    ) -> Page:
        """A page of the entities of a type, or of every type; no attribute names means all."""
        return self._entities.query(type_, attribute_names, offset, count)

    def read(self, type_: str, name: str) -> dict[str, object]:
        """One entity's attributes, found by name or identity; the broker answers to any name."""
        return self._entities.read(type_, name)

    def snapshot(self) -> Snapshot:
        """The broker and its nodes, for metrics."""
        return Snapshot(self.broker(), tuple(self._queue_view(node) for node in self.engine.every_node()))

    def broker(self) -> BrokerView:
        """The broker as a whole."""
        nodes = list(self.engine.every_node())
        # What lies at a topic lies at its subscriptions, and their producers are the topic's.
        holders = [node for node in nodes if not node.is_topic]
        owners = [node for node in nodes if not node.is_subscription]
        return BrokerView(
            name=self.process.name,
            version=self.process.version,
            pid=self.process.pid,
            uptime_s=(self.engine.now_ns - self.process.started_ns) / SECOND_NS,
            flow_control=self.engine.flow_control,
            holds=self.holds.patterns,
            policy_files=tuple(dict.fromkeys(policy.place.file for policy in self.policies.policies)),
            connections=len(self.links.connections()),
            producers=sum(len(node.ledger.accounts) for node in owners),
            consumers=sum(len(node.consumers) for node in nodes),
            queues=sum(node.kind == "queue" and not _is_own(node) for node in nodes),
            topics=sum(node.is_topic for node in nodes),
            subscriptions=sum(node.is_subscription for node in nodes),
            stopped_nodes=sum(node.gate.closed for node in nodes),
            blocked_producers=sum(node.ledger.blocked() for node in owners),
            depth_msgs=sum(node.gate.depth_msgs for node in holders),
            depth_bytes=sum(node.gate.depth_bytes for node in holders),
            promised_msgs=sum(node.ledger.promised_msgs for node in owners),
            parked_msgs=sum(node.ledger.parked_msgs for node in owners),
            parked_bytes=sum(node.ledger.parked_bytes for node in owners),
            memory_bytes=self.process.memory(),
            memory_limit_bytes=self.process.memory_limit_bytes,
            totals=self._totals.look(nodes),
            store=StoreView.of(self.engine),
        )

    def readiness(self) -> str:
        """Why the broker isn't ready for traffic; empty if it is."""
        storing = self.engine.storing
        if storing is not None and storing.store.state != WRITING:
            return storing.store.reason
        return self.engine.paging_fault()

    # --- inside

    def _effective(self, address: str, arguments: Mapping[str, object], capability: str = "") -> Effective:
        return self.policies.effective(
            address, arguments, self.defaults, capability=capability, auto_create=self.auto_create
        )

    def _now(self, node: Node) -> Effective:
        return self._effective(node.name, node.arguments, _capability(node))

    def _add(
        self, name: str, arguments: dict[str, object], effective: Effective, shelf: Shelf | None = None
    ) -> Node:
        node = self.engine.create(name, effective.settings, _definition(effective, arguments), shelf)
        node.arguments = arguments
        node.origins = dict(effective.origins)
        self._hold(node)
        if node.is_topic:
            self.subscriptions.topic_made(node)
        self.bridges.node_made(node)
        self.on_create(node)
        return node

    def _topic(self, address: str) -> Node:
        node = self.resolve(address, "topic")
        if not node.is_topic:
            raise OperatorError(f"'{address}' is a queue: only topics have subscriptions")
        return node

    def _pattern_settings(self, pattern: str) -> NodeSettings:
        """Those of a subscription to many topics: what policies say of the pattern's text."""
        return self._effective(pattern, {}, "topic").settings

    def _subscription_gone(self, node: Node) -> None:
        self._totals.retire(node)
        self.on_delete(node)

    def _change(self, node: Node, arguments: dict[str, object], effective: Effective) -> None:
        self.engine.change(node, effective.settings)
        if effective.settings.durable or node.shelf is not None:
            self.engine.define(node, _definition(effective, arguments))
        node.arguments = arguments
        node.origins = dict(effective.origins)
        for each in (node, *node.subscriptions):
            self.on_change(each)

    def _hold(self, node: Node) -> None:
        held = bool(self.holds.holding(node.name))
        if node.gate.held != held:
            self.engine.hold(node, held)

    def _held_by(self, node: Node) -> str:
        return self.holds.holding(node.address)

    def _plan(
        self, policies: PolicySet, defaults: BrokerDefaults
    ) -> tuple[list[tuple[Node, Effective]], list[str]]:
        effective: list[tuple[Node, Effective]] = []
        problems: list[str] = []
        for node in self.engine.nodes.values():
            if _is_own(node):
                continue
            try:
                each = policies.effective(
                    node.name,
                    node.arguments,
                    defaults,
                    capability=_capability(node),
                    auto_create=self.auto_create,
                )
            except OperatorError as refusal:
                problems.append(str(refusal))
                continue
            if each.settings.kind != node.kind:
                problems.append(f"'{node.name}' is a {node.kind} and can't become a {each.settings.kind}")
            effective.append((node, each))
        return effective, problems

    def _queue_view(self, node: Node) -> QueueView:
        return queue_view(node, self._held_by(node), self.engine.now_ns)

    def _why_producers(self, node: Node) -> list[Why]:
        """Those of the node; of a subscription, its topic's if this gate is what holds them."""
        if node.is_subscription and not node.gate.closed:
            return []
        found: list[Why] = []
        for owner in node.owners() if node.is_subscription else [node]:
            links = [link for link in self.links.producers(owner.name) if link.blocked]
            told = self._held_by(owner), self.engine.now_ns, self.readiness()
            found += [reasons.of_producer(link, owner, *told) for link in links]
        return found

    def _why_consumers(self, node: Node) -> list[Why]:
        found = [
            reasons.of_consumer(link, each)
            for each in (node, *node.subscriptions)
            for link in self.links.consumers(each.name)
        ]
        return [answer for answer in found if answer is not None]

    def _why_link(self, name: str) -> list[Why]:
        links: list[ProducerView | ConsumerView] = [*self.links.producers(None), *self.links.consumers(None)]
        nodes = {link.node for link in links if name in (link.id, link.link) and link.node}
        if not nodes:
            raise NotFoundError(f"no queue, topic, subscription or link named '{name}'")
        answers = [answer for node in sorted(nodes) for answer in self.why(node)]
        mine = [answer for answer in answers if name in (answer.link_id, answer.link)]
        return mine or [reasons.idle_link(name, self.find(node)) for node in sorted(nodes)]


def _check_new(name: str) -> None:
    """OperatorError if no new queue or topic may be called so."""
    check_name(name)
    if is_pattern(name):
        raise OperatorError(f"'{name}' stands for many topics: it can be subscribed, and be no node's name")


def _definition(effective: Effective, arguments: Mapping[str, object]) -> bytes:
    kind = effective.settings.kind
    asked = kind if effective.origins.get("kind") == CAPABILITY else ""
    return Definition(kind, arguments, asked).encode()


def _without_none(arguments: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in arguments.items() if value is not None}


def _capability(node: Node) -> str:
    """The kind a client asked for when the node came to be, where that is what decided."""
    return node.kind if node.origins.get("kind") == CAPABILITY else ""


def _is_own(node: Node) -> bool:
    """True for nodes of the broker's own, which no policy and no hold is about."""
    return node.name.startswith("$")
