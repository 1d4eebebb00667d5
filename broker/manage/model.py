"""Every command an operator or a client's attach can give, in one place; AMQP, HTTP and the command
line translate to it and decide nothing themselves.

All verbs run on the thread that owns the engine, within a turn; the caller ends the turn, so that
credit given or taken back by a command goes out. A refused command changes nothing.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import TypeVar

from broker.config.flow import BrokerDefaults
from broker.config.node import DEAD_LETTERS, NodeSettings, SettingError, normalise
from broker.config.patterns import is_pattern
from broker.config.policies import CAPABILITY, Effective, PolicySet, Setting, tolerated
from broker.config.policy_files import parse_policies
from broker.config.synonyms import ARGUMENTS, from_arguments
from broker.config.thresholds import bounded, resolve
from broker.engine.engine import SECOND_NS, Engine
from broker.engine.node import Node
from broker.errors import ConflictError, NotFoundError, OperatorError
from broker.manage import survey
from broker.manage.access import TEMPORARY, AccessControl
from broker.manage.aside import Aside
from broker.manage.attributes import PREFIX
from broker.manage.audit import Audit, audit
from broker.manage.backups import Backups
from broker.manage.bindings import Bindings, check, check_ends, check_kind, parents_of
from broker.manage.bridges import DefinedBridges
from broker.manage.browsing import Browsing
from broker.manage.definitions import Definition
from broker.manage.effect import Effect, effect
from broker.manage.entities import NODE_KINDS, Entities, Page
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.holds import EVERYTHING, ProducerHolds, matches, parsed
from broker.manage.idle import Idle
from broker.manage.listing import Listing
from broker.manage.loglevels import LogLevels
from broker.manage.names import check_name, is_own, placed
from broker.manage.ownership import Ownership
from broker.manage.policies import policy_views
from broker.manage.process import Process
from broker.manage.samples import Flow, Sample, Samples
from broker.manage.subscriptions import SubscriptionKey, Subscriptions
from broker.manage.survey import Survey, SurveyResult
from broker.manage.totals import Totals
from broker.manage.tracing import Tracing
from broker.manage.views import (
    BrokerView,
    ConsumerView,
    Links,
    QueueView,
    Snapshot,
    StoreView,
    queue_view,
    waiting_msgs,
)
from broker.manage.why import advice
from broker.manage.why import why as reasons
from broker.manage.why.deadlocks import DeadlockWatch
from broker.manage.why.forecasts import Forecasts
from broker.manage.why.producer import WhyContext
from broker.manage.why.why import Why
from broker.store.port import WRITING, QueueLog
from broker.units import format_size

log = logging.getLogger("sluice.store")

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
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
    settings: tuple[EffectiveSetting, ...]


# Links that one answer says why they wait, about: they are told in one turn of the broker's thread.
MOST_TOLD = 1000

# Of policies in a request: so much is read in a second or two, and what is more belongs into a file.
LARGEST_TEXT = 256 << 10
# How long a text waits while another one is read: they are read one after the other.
READING_S = 2.0

# The store's note of the operators' holds.
HOLDS = "holds"

BROKER = PREFIX + "broker"
# What is said of nodes in files.
Terms = tuple[PolicySet, BrokerDefaults]
# The names of the nodes that changed, once the last step is taken.
Steps = Generator[None, None, list[str]]
NO_PARENTS: Mapping[str, Mapping[str, object]] = MappingProxyType({})
NOTHING: Mapping[str, object] = MappingProxyType({})


def _ignore(node: Node) -> None:
    """No room that knows the wire is interested."""


@dataclass(frozen=True, slots=True)
class Reread:
    """What the broker's files say now; ``take_over`` is for all that isn't policies, on the loop's thread."""

    policies: PolicySet
    defaults: BrokerDefaults
    take_over: Callable[[], None]


class Model:
    """An engine, its policies and the links on it, under the verbs that operators know.

    ``on_delete`` is told of each node and subscription that went, to detach its links; ``on_change``
    of each that has new settings, to give consumers their new windows. ``on_reload`` reads
    the broker's files anew, on any thread. ``own`` are topics of the broker's own, which clients may
    subscribe to and not send to; one is made when it is first asked for. ``on_create`` is told of each
    queue and topic that came to be. ``routes`` and ``channels`` show those there are. ``log_levels`` and
    ``tracing`` are verbs about the broker's log. ``authority`` knows who may do what: no verb asks it, but
    whoever gives one for somebody (``acting``). ``user`` is who makes a node, '' for the broker itself.
    """

    def __init__(
        self,
        engine: Engine,
        policies: PolicySet,
        defaults: BrokerDefaults,
        links: Links,
        process: Process | None = None,
        holds: ProducerHolds | None = None,
        auto_create: bool = True,
    ) -> None:
        self.engine = engine
        self.policies = policies
        self.defaults = defaults
        self.links = links
        self.process = process or Process()
        self.holds = holds or ProducerHolds()
        self.auto_create = auto_create
        self.own: dict[str, NodeSettings] = {}
        self.on_delete: Callable[[Node], None] = _ignore
        self.on_change: Callable[[Node], None] = _ignore
        self.on_create: Callable[[Node], None] = _ignore
        self.on_reload: Callable[[], Reread] | None = None
        self.backups = Backups()
        self.on_events: Callable[[int, bool], list[bytes]] | None = None
        # One for trials: whoever may only see the broker keeps nobody from changing it.
        self._reading = {dry_run: threading.Lock() for dry_run in (True, False)}
        self.subscriptions = Subscriptions(
            engine, self._topic, self._of_subscription, self._subscription_gone, self._changed
        )
        self.subscriptions.standing = self._standing_subscription
        self.subscriptions.surviving = self._surviving_topic
        self.subscriptions.is_taken = self._is_taken
        self.aside = Aside(engine, lambda: resolve({}, self.defaults))
        self.deadlocks = DeadlockWatch(engine, self._catch_up)
        self.forecasts = Forecasts(engine, self._catch_up)
        engine.watch = self.deadlocks.stir
        self._bindings = Bindings(engine)
        self.bridges = DefinedBridges(engine, self.resolve, self.destination)
        self.routes: Callable[[], Sequence[RouteView]] = tuple
        self.channels: Callable[[], Sequence[ChannelView]] = tuple
        self.authority = AccessControl()
        self.ownership = self.subscriptions.ownership = Ownership()
        self.log_levels = LogLevels()
        self.tracing = Tracing()
        self._totals = Totals()
        others: dict[str, Callable[[], Iterable[object]]] = {
            "bridge": self.bridges.views,
            "route": lambda: self.routes(),
            "channel": lambda: self.channels(),
            "policy": lambda: policy_views(self.policies),
        }
        self._entities = Entities(engine, links, self.holds, self.process.epoch_ns, self.broker, others)
        self.listing = Listing(engine, links, self._entities)
        self.samples = Samples()
        self._idle = Idle(engine, self.subscriptions, lambda name: self.delete(name, anyway=True))
        # How many nodes were made with each of them as their place of dead letters.
        self._letter_places: Counter[str] = Counter()

    # --- nodes

    def resolve(
        self,
        address: str,
        wanted_kind: str | None = None,
        user: str = "",
        asked: Mapping[str, object] = NOTHING,
    ) -> Node:
        """The node at an address, created if a policy allows it.

        Its kind is the policy's, else the one that is wanted, else queue. One that is created gets the
        settings that are ``asked`` for, in Qpid's words, as far as policies don't say less.
        """
        node = self.engine.nodes.get(address)
        if node is not None:
            return node
        if address in self.own:
            return self.engine.create(address, self.own[address])
        arguments = self._allowed(address, asked)
        effective = self._of_new(address, wanted_kind or "", arguments=arguments)
        return self._add(address, arguments, effective, user=user)

    def destination(self, address: str, wanted_kind: str | None = None, user: str = "") -> Node:
        """The node that messages to this address go to; OperatorError if nobody may send there."""
        _check_not_own(address, "sent to")
        return self.resolve(address, wanted_kind, user)

    def create(
        self,
        kind: str,
        name: str,
        arguments: Mapping[str, object] | None = None,
        durable: bool | None = None,
        user: str = "",
    ) -> Node:
        """A new queue or topic; ``arguments`` in our words or Qpid's stand above every policy."""
        _check_new(name)
        self._check_free(name)
        explicit = from_arguments(arguments or {})
        if explicit.setdefault("kind", kind) != kind:
            raise OperatorError(f"kind {explicit['kind']!r} contradicts the type {kind!r}")
        if durable is not None:
            explicit["durable"] = durable
        return self._add(name, explicit, self._effective(name, explicit), user=user)

    def restore(self, name: str, known: Definition, shelf: QueueLog, topics: Sequence[str] = ()) -> Node:
        """A durable queue or topic as it was before the restart, empty; ``topics`` are those it was bound to.

        It keeps its kind, and goes without settings that contradict others now: the log has why.
        """
        if known.kind not in ("queue", "topic"):
            raise OperatorError(f"it is a '{known.kind}', which this version doesn't know")
        arguments, unknown = _understood(name, known.arguments)
        nodes = self.engine.nodes
        parents = {each: nodes[each].arguments for each in topics if each in nodes}
        effective = self._tolerated(name, known.kind, arguments, known.capability, parents)
        node = self._add(name, arguments, effective, shelf, known.maker)
        _tell_faults(name, (*unknown, *effective.faults))
        return node

    def restore_topic(self, address: str) -> None:
        """The topic of a subscription that survived, where it didn't: before the subscriptions are there,
        whose names may be like its own.
        """
        if not is_pattern(address):
            self._surviving_topic(address)

    def restore_subscription(self, wanted: SubscriptionKey, name: str, shelf: QueueLog) -> Node:
        """A durable subscription as it was, empty. Where its name is something else's by now it has another:
        clients know it by its receiver's names, and a node by its own.
        """
        called = self.subscriptions.free_name(name) if self._is_taken(name) else name
        node, faults = self.subscriptions.restore(wanted, called, shelf)
        _tell_faults(called, faults)
        return node

    def withdraw(self, shelf: QueueLog) -> None:
        """Take out what was being restored from this shelf, if it got that far; the store keeps all of it."""
        for node in [each for each in self.engine.every_node() if each.shelf is shelf]:
            self.engine.withdraw(node)
            self.ownership.gone(node)
            self.subscriptions.forget(node)
            self.bridges.node_gone(node)
            self._letters_go(_place_in(node.arguments), "")

    def restore_holds(self, rules: bytes) -> None:
        """The operators' holds as they were before the restart."""
        # All of them are read before any holds.
        for pattern, held in [(str(each), bool(held)) for each, held in json.loads(rules or b"[]")]:
            self.holds.put(pattern, held)

    def update(self, name: str, arguments: Mapping[str, object]) -> Node:
        """Change settings at runtime; None takes an argument back, so that the policy's holds again."""
        _check_not_own(name, "changed")
        node = self.engine.node(name)
        explicit = _changed_arguments(node, arguments)
        effective = self._checked(node, explicit)
        self._check_heirs(node, explicit)
        self._change(node, explicit, effective)
        self._hand_down(node)
        return node

    def delete(self, name: str, anyway: bool = False) -> Node:
        """Remove a queue, a topic with its subscriptions, or one subscription; with all its messages.

        OperatorError where what a queue has from a topic is needed there; with ``anyway`` such a queue goes
        on without the settings that contradict others then.
        """
        _check_not_own(name, "deleted")
        node = self.find(name)
        if not anyway:
            self._check_heirs(node, None)
        gone = [*(each for each in node.subscriptions if each.is_subscription), node]
        for each in gone:
            self._totals.retire(each)
        if node.is_subscription:
            self.engine.unsubscribe(node)
        else:
            heirs = [each for each in node.subscriptions if not each.is_subscription]
            bound = bool(heirs or node.topics)
            self.engine.delete(name)
            if bound:
                self._bindings.keep()
            for each in heirs:
                self._resettle(each)
        for each in gone:
            if each.deleted:
                self.aside.empty_box(each.name)
                self.ownership.gone(each)
                self.subscriptions.forget(each)
                self.bridges.node_gone(each)
                self._letters_go(_place_in(each.arguments), "")
                self.on_delete(each)
        return node

    def purge(self, name: str, dry_run: bool = False) -> int:
        """Drop every message of a queue, or of a topic's subscriptions, that no consumer holds; how many.

        With ``dry_run`` they are only counted.
        """
        node = self.find(name)
        holders = [node, *(each for each in node.subscriptions if each.is_subscription)]
        if dry_run:
            return sum(waiting_msgs(each) for each in holders)
        return sum(self.engine.purge(each) for each in holders)

    def move(self, source: str, target: str, count: int = 0, dry_run: bool = False, user: str = "") -> int:
        """Move the oldest messages of a queue to another as that has room; how many will go. 0 is all."""
        here = self.find(source)
        # Only what is to be done may make its target.
        _check_not_own(target, "sent to")
        there = self.engine.nodes.get(target) if dry_run else self.destination(target, user=user)
        if here is there:
            raise OperatorError(f"'{source}' is both source and target")
        if here.is_topic:
            raise OperatorError(f"'{source}' is a topic: move the messages of one of its subscriptions")
        count = min(count or waiting_msgs(here), waiting_msgs(here))
        return count if dry_run or there is None else self.engine.move(here, there, count)

    def browse(
        self, name: str, offset: int = 0, count: int = 20, told: Callable[[], None] = lambda: None
    ) -> Browsing:
        """A look at the oldest messages of a queue, as they are. ``told`` is called, on the reactor's thread,
        when it can go on where something has to be read from disk first.
        """
        return Browsing(self.find(name), offset, count, told)

    def bind(self, source: str, target: str, user: str = "") -> None:
        """A queue takes what is sent to a topic, and from now on what it doesn't set itself (FLOW §6)."""
        # All is looked at first, what is there and what would be made: a refusal makes no node.
        topic, queue = self.engine.nodes.get(source), self.engine.nodes.get(target)
        check_ends(topic, queue)
        if source == target:
            raise OperatorError(f"'{source}' can't be bound to itself")
        if topic is not None and queue is not None:
            check(topic, queue)
        added = None
        if topic is None and source not in self.own:
            added = self._of_new(source, "topic")
            check_kind(source, added.settings.kind, "topic")
        above = {source: {} if topic is None else topic.arguments}
        if queue is None:
            effective = self._of_new(target, "queue", above)
            check_kind(target, effective.settings.kind, "queue")
        else:
            effective = self._followed(queue, {**parents_of(queue), **above})
        self.ownership.check(user, made=(added is not None) + (queue is None))
        if topic is None:
            topic = self.resolve(source) if added is None else self._add(source, {}, added, user=user)
        if queue is None:
            queue = self._add(target, {}, effective, user=user)
        self._bindings.bind(topic, queue)
        self._change(queue, queue.arguments, effective)
        self._bindings.keep()

    def unbind(self, source: str, target: str) -> None:
        """It takes no more of them, and what it had from the topic holds no longer."""
        topic, queue = self.engine.node(source), self.engine.node(target)
        parents = {name: given for name, given in parents_of(queue).items() if name != source}
        effective = self._followed(queue, parents)
        self._bindings.unbind(topic, queue)
        self._change(queue, queue.arguments, effective)

    def keep_notes(self) -> None:
        """Note the holds and the bindings there are: they were read from elsewhere."""
        self._keep_holds()
        self._bindings.keep()

    def restore_bindings(self, noted: Mapping[str, Sequence[str]]) -> None:
        """The bindings as they were before the restart: by queue, its topics."""
        self._bindings.restore(noted, self.aside.has)

    def letter_box(self, address: str) -> Node:
        """Where dead letters for an address go. Where no node can have that name for now they wait: for one
        that was set aside, or until the subscription that has it is gone.
        """
        node = self.engine.nodes.get(address)
        if node is not None:
            return node
        if self._is_taken(address):
            return self.aside.box(address)
        if address == self._place_of_letters(address):
            # Nobody could be asked to allow it, and without it they would be lost.
            return self._add(address, {}, self._tolerated(address, "queue", {}, "queue", NO_PARENTS))
        return self.destination(address)

    def discard(self, name: str) -> int:
        """Remove what was set aside under a name, with all its messages: how many those were."""
        msgs = self.aside.discard(name)
        self.subscriptions.discard(name)
        self._bindings.discard(name)
        log.warning("'%s', which was set aside, was discarded with %d messages", name, msgs)
        return msgs

    def find(self, name: str) -> Node:
        """A queue, topic or subscription that exists."""
        node = self.engine.nodes.get(name) or self.engine.subscriptions.get(name)
        if node is None:
            raise NotFoundError(f"no queue, topic or subscription named '{name}'")
        return node

    def typed(self, kind: str, name: str) -> Node:
        """A node that exists and is of that kind."""
        node = self.find(name)
        if node.kind != kind:
            raise NotFoundError(f"no {kind} named '{name}'")
        return node

    # --- operators

    def hold(self, target: str | None, held: bool) -> list[str]:
        """Stop (or start again) the producers of a node, of a pattern, or of all: the nodes concerned.

        It holds for nodes to come as well, until it is lifted.
        """
        wanted = target or EVERYTHING
        pattern = parsed(wanted)
        self.holds.put(wanted, held)
        self._keep_holds()
        nodes = [node for node in self.engine.nodes.values() if matches(wanted, pattern, node.name)]
        for node in nodes:
            self._hold(node)
        names = [node.name for node in nodes if not _is_own(node)]
        told = {"action": "stop" if held else "start", "target": wanted, "nodes": len(names)}
        self.engine.emit("operator", None, told)
        return names

    def apply(self, policies: PolicySet, defaults: BrokerDefaults | None = None) -> list[str]:
        """New policies for every node, those that exist included: the names of those that changed.

        OperatorError, with every reason, if one of the nodes can't follow; then the old ones stand.
        """
        return ended(self._apply_in_parts(lambda: policies, defaults))

    def apply_in_parts(self, given: PolicySet) -> Steps:
        """Policies that replace those of the same patterns, the others stay; otherwise as ``apply``.

        They hold until the policy files are read again. It is worked out in steps, and then done node by
        node, to its end even where nobody asks for the next step any more.
        """
        return self._apply_in_parts(lambda: self._with(given))

    def try_in_parts(self, given: PolicySet) -> Steps:
        """What ``apply_in_parts`` would change, and refuse; nothing is changed."""
        planned = yield from self._planned(self._with(given), self.defaults)
        return [node.name for node, each in planned if not node.deleted and each.settings != node.settings]

    def read_text(self, text: str, file: str, dry_run: bool = False) -> PolicySet:
        """The policies of a text in hand, on any thread: it takes seconds where there are very many.

        ConfigError with all that is wrong in it; OperatorError where it is too large, ConflictError where
        another one is read already.
        """
        if len(text) > LARGEST_TEXT:
            limit = format_size(LARGEST_TEXT)
            raise OperatorError(
                f"{file} is larger than {limit}: put it into the broker's own files and reload"
            )
        reading = self._reading[dry_run]
        if not reading.acquire(timeout=READING_S):
            raise ConflictError("other policies are being read; try again")
        try:
            return parse_policies(text, file)
        finally:
            reading.release()

    def apply_text(self, text: str, file: str) -> list[str]:
        """``apply_in_parts`` of a text in hand, at once. ConfigError with all that is wrong in it."""
        return ended(self.apply_in_parts(parse_policies(text, file)))

    def try_text(self, text: str, file: str) -> list[str]:
        """``try_in_parts`` of a text in hand, at once. ConfigError with all that is wrong in it."""
        return ended(self.try_in_parts(parse_policies(text, file)))

    def effect(self, name: str, arguments: Mapping[str, object]) -> Effect:
        """What ``update`` would come to, and refuse; nothing is changed."""
        _check_not_own(name, "changed")
        node = self.engine.node(name)
        explicit = _changed_arguments(node, arguments)
        effective = self._checked(node, explicit)
        self._check_heirs(node, explicit)
        return effect(node, effective.settings, self.engine.flow_control)

    def close_connection(self, connection_id: str) -> None:
        """Close a client's connection, which is told that an operator did."""
        if not self.links.close(connection_id):
            raise NotFoundError(f"no connection '{connection_id}'")

    def detach_link(self, link_id: str) -> None:
        """Detach a client's link; its connection and its other links go on."""
        if not self.links.detach(link_id):
            raise NotFoundError(f"no link '{link_id}'")

    def read_again(self) -> Reread:
        """Read settings and policies again, on any thread. ConfigError or OperatorError with all faults."""
        if self.on_reload is None:
            raise OperatorError("this broker was started without files to read again; name a file to apply")
        return self.on_reload()

    def reload_in_parts(self, read: Reread) -> Steps:
        """Apply what was read again, in steps as ``apply_in_parts``: the names of the nodes that changed."""
        changed = yield from self._apply_in_parts(lambda: read.policies, read.defaults)
        read.take_over()
        return changed

    def reload(self) -> list[str]:
        """Read settings and policies again and apply them, at once."""
        return ended(self.reload_in_parts(self.read_again()))

    # --- seeing it

    def events(self, count: int, samples: bool = True) -> list[bytes]:
        """The last events as JSON, oldest first; any thread may ask. NotFoundError where none are kept."""
        if self.on_events is None:
            raise NotFoundError("this broker keeps no events (events.enabled)")
        return self.on_events(count, samples)

    def sample(self) -> None:
        """Once a second: what nodes look like now, for ``history``; those that nobody uses any more go."""
        self._idle.look()
        self.forecasts.sample()
        self.samples.look(self.engine.every_node(), self.engine.now_ns)

    def history(self, name: str, seconds: int) -> list[Sample]:
        """A row a second of a node's last minutes, as far back as is known."""
        return self.samples.of(self.find(name), self.engine.now_ns, seconds)

    def broker_history(self, seconds: int) -> list[Flow]:
        """A row a second of the whole broker's last minutes."""
        return self.samples.flow(seconds)

    def audit(self) -> Audit:
        """Whether the conservation laws hold now; what is under way in this turn is ended first."""
        self.engine.end_turn()
        return audit(self.engine)

    def explain(self, address: str) -> Explanation:
        """Every setting at an address, its effective value and where it comes from."""
        wanted = self.subscriptions.wanted(address)
        node = self.engine.nodes.get(address)
        if wanted is not None:
            effective = self._standing_subscription(wanted)
        else:
            check_name(address)
            effective = self._effective(address, {}) if node is None else self._standing(node)
        settings = effective.settings
        return Explanation(
            address=address,
            kind=settings.kind if wanted is None else "subscription",
            exists=node is not None or wanted is not None,
            auto_create=effective.auto_create,
            held_by=self.holds.holding(address),
            settings=tuple(
                EffectiveSetting(row.name, getattr(settings, row.name), effective.origins[row.name])
                for row in fields(NodeSettings)
            ),
        )

    def why(self, name: str = "") -> list[Why]:
        """One answer for every producer without credit and every consumer held up: of a node, or a link by
        its name or id, or without a name of the whole broker.
        """
        self._catch_up()
        store = self.readiness()
        if not name:
            return self._why_all("", store)
        try:
            node = self.find(name)
        except NotFoundError:
            found = self._why_all(name, store)
            if not found:
                raise NotFoundError(f"no queue, topic, subscription or link named '{name}'") from None
            return found
        waiting = self._why_node(node, store) or [reasons.of_node(node, self._around(node, store))]
        return waiting + self._advice(node)

    def query(
        self,
        type_: str | None,
        attribute_names: Sequence[str] = (),
        offset: int = 0,
        count: int = 1000,
        sort: str = "",
        pattern: str = "",
        only: Callable[[object], bool] | None = None,
    ) -> Page:
        """A page of the entities of a type, or of every type; no attribute names means all.

        Queues, topics and subscriptions can be sorted and filtered by name (see ``Listing.page``); then the
        broker's own are left out. ``only`` sorts out those that are to be there at all, by node or view.
        """
        if sort or pattern:
            kind = (type_ or "").removeprefix(PREFIX)
            if kind not in NODE_KINDS:
                raise OperatorError("only queues, topics and subscriptions can be sorted and filtered")
            return self.listing.page(kind, attribute_names, offset, count, sort, pattern, only)
        return self._entities.query(type_, attribute_names, offset, count, only)

    def read(self, type_: str, name: str, only: Callable[[object], bool] | None = None) -> dict[str, object]:
        """One entity's attributes, found by name or identity; the broker answers to any name."""
        return self._entities.read(type_, name, only)

    def snapshot(self) -> Snapshot:
        """The broker and its nodes, for metrics."""
        return Snapshot(self.broker(), tuple(self._queue_view(node) for node in self.engine.every_node()))

    def survey(self, wanted: survey.SurveyScope) -> Generator[None, None, SurveyResult]:
        """Everything that is counted, read in parts: a node after each ``next``, and all when it returns."""
        reading = self._survey()
        try:
            yield from reading.steps(lambda: self.engine.now_ns, wanted.subscriptions)
            return SurveyResult(
                broker=self._broker(reading),
                nodes=reading.nodes,
                rows=reading.rows,
                subscriptions=reading.subscriptions,
                subscription_rows=reading.subscription_rows,
                bridges=tuple(self.bridges.views()),
                routes=tuple(self.routes()),
                channels=tuple(self.channels()),
                producers=tuple(self.links.producers(None)) if wanted.links else (),
                consumers=tuple(self.links.consumers(None)) if wanted.links else (),
            )
        finally:
            self._totals.abandon(reading.look)

    def broker(self) -> BrokerView:
        """The broker as a whole."""
        reading = self._survey()
        reading.add_up()
        return self._broker(reading)

    def broker_in_parts(self) -> Generator[None, None, dict[str, object]]:
        """The broker's attributes, read in parts: with many nodes ``broker`` would hold up every message."""
        reading = self._survey()
        try:
            yield from reading.sums_in_parts()
            return self._entities.row(BROKER, self._broker(reading))
        finally:
            self._totals.abandon(reading.look)

    def _survey(self) -> Survey:
        return Survey(
            list(self.engine.every_node()), self._totals.begin(), bool(self.holds.patterns), self._held_by
        )

    def _broker(self, reading: Survey) -> BrokerView:
        return BrokerView(
            name=self.process.name,
            version=self.process.version,
            pid=self.process.pid,
            uptime_s=(self.engine.now_ns - self.process.started_ns) / SECOND_NS,
            flow_control=self.engine.flow_control,
            holds=self.holds.patterns,
            policy_files=tuple(dict.fromkeys(policy.place.file for policy in self.policies.policies)),
            connections=len(self.links.connections()),
            memory_bytes=self.process.memory(),
            memory_limit_bytes=self.process.memory_limit_bytes,
            totals=self._totals.end(reading.look),
            store=StoreView.of(self.engine),
            deadlocks=self.deadlocks.views(),
            deadlocks_found=self.deadlocks.found_total,
            set_aside=self.aside.views(),
            **asdict(reading.sums),
        )

    def readiness(self) -> str:
        """Why the broker isn't ready for traffic; empty if it is."""
        storing = self.engine.storing
        if storing is not None and storing.store.state != WRITING:
            return storing.store.reason
        return self.engine.paging.fault()

    # --- inside

    def _with(self, given: PolicySet) -> PolicySet:
        """The policies there are, and in place of those of the same patterns these."""
        replaced = {policy.key for policy in given.policies}
        kept = [policy for policy in self.policies.policies if policy.key not in replaced]
        return PolicySet.of([*kept, *given.policies])

    def _catch_up(self) -> None:
        """Gates opened or closed, links came or went since the last time."""
        for node in self.engine.take_changed_nodes():
            self.deadlocks.changed(node)
            self.forecasts.changed(node)

    def _effective(
        self,
        address: str,
        arguments: Mapping[str, object],
        capability: str = "",
        parents: Mapping[str, Mapping[str, object]] = NO_PARENTS,
        terms: Terms | None = None,
        without: Collection[Setting] = (),
    ) -> Effective:
        policies, defaults = terms or (self.policies, self.defaults)
        defaults = self.defaults_at(address, defaults)
        return policies.effective(
            address, arguments, defaults, parents, capability, auto_create=self.auto_create, without=without
        )

    def _allowed(self, address: str, asked: Mapping[str, object]) -> dict[str, object]:
        """What a client's attach asks for, within what policies say; SettingError where it is none."""
        if not asked:
            return {}
        given = {name: each.value for name, each in normalise(from_arguments(asked)).items()}
        return dict(bounded(given, self.policies.said(address)))

    def defaults_at(self, address: str, defaults: BrokerDefaults | None = None) -> BrokerDefaults:
        """The defaults at an address: each virtual host has its place of dead letters, and a node that
        an operator has made such a place has none for its own.
        """
        held = defaults or self.defaults
        place = self._place_of_letters(address)
        if address in self._letter_places and address != place:
            return held.without_letters("dead letters come here")
        return held if place == held.dead_letter_address else replace(held, dead_letter_address=place)

    def _place_of_letters(self, address: str) -> str:
        host, _ = placed(address, self.authority.hosts)
        return f"{host}/{DEAD_LETTERS}" if host else DEAD_LETTERS

    def _of_new(
        self,
        address: str,
        kind: str,
        parents: Mapping[str, Mapping[str, object]] = NO_PARENTS,
        arguments: Mapping[str, object] = NOTHING,
    ) -> Effective:
        """What holds for a node that is to be made because somebody uses it; OperatorError if it may not."""
        if address.startswith(f"{TEMPORARY}/"):
            raise NotFoundError(
                f"the reply address '{address}' is gone: a temporary node goes with its link or connection"
            )
        if address.startswith("$"):
            raise NotFoundError(f"no node '{address}': names that start with '$' are the broker's own")
        _check_new(address)
        self._check_free(address)
        effective = self._effective(address, arguments, kind, parents)
        if not effective.auto_create:
            why = effective.origins["auto_create"]
            raise NotFoundError(f"no queue or topic named '{address}', and auto_create is false ({why})")
        return effective

    def _checked(
        self,
        node: Node,
        arguments: Mapping[str, object],
        parents: Mapping[str, Mapping[str, object]] | None = None,
        terms: Terms | None = None,
    ) -> Effective:
        """What would hold for a node that is there; OperatorError where it can't."""
        parents = parents_of(node) if parents is None else parents
        effective = self._effective(node.name, arguments, _capability(node), parents, terms)
        if effective.settings.kind != node.kind:
            kind = effective.settings.kind
            raise OperatorError(f"'{node.name}' is a {node.kind} and can't become a {kind}")
        return effective

    def _followed(
        self,
        node: Node,
        parents: Mapping[str, Mapping[str, object]] | None = None,
        terms: Terms | None = None,
    ) -> Effective:
        """What would hold for a node by a change that is about others.

        OperatorError where it can't, but for a node that goes without some settings already (``restore``).
        """
        try:
            return self._checked(node, node.arguments, parents, terms)
        except OperatorError:
            if not self._standing(node).faults:
                raise
        return self._standing(node, parents, terms)

    def _standing(
        self,
        node: Node,
        parents: Mapping[str, Mapping[str, object]] | None = None,
        terms: Terms | None = None,
    ) -> Effective:
        """The same, with whatever it has to go without."""
        parents = parents_of(node) if parents is None else parents
        return self._tolerated(node.name, node.kind, node.arguments, _capability(node), parents, terms)

    def _tolerated(
        self,
        name: str,
        kind: str,
        arguments: Mapping[str, object],
        capability: str,
        parents: Mapping[str, Mapping[str, object]],
        terms: Terms | None = None,
    ) -> Effective:
        """What holds for a node that has to be there and to be of this kind, whatever is said of it."""

        def of(capability: str) -> Effective:
            return tolerated(
                lambda without: self._effective(name, arguments, capability, parents, terms, without)
            )

        effective = of(capability)
        if effective.settings.kind != kind:
            # What a client asked for, or an operator's policy that isn't kept, where nothing else is said.
            effective = of(kind)
        if effective.settings.kind == kind:
            return effective
        origin = effective.origins["kind"]
        return replace(
            effective,
            settings=replace(effective.settings, kind=kind),
            origins=effective.origins | {"kind": f"what it was made as, against {origin}"},
            faults=(*effective.faults, f"'{name}' is a {kind} and can't become another kind ({origin})"),
        )

    def _check_heirs(self, topic: Node, arguments: Mapping[str, object] | None) -> None:
        """OperatorError if those that take from a topic couldn't where it had these arguments, or, with
        None, where it were gone with its subscriptions.
        """
        for heir in topic.subscriptions:
            if not heir.is_subscription:
                parents = dict(parents_of(heir))
                if arguments is None:
                    del parents[topic.name]
                else:
                    parents[topic.name] = arguments
                self._followed(heir, parents)
        if arguments is not None and topic.is_topic:
            for wanted in self.subscriptions.all_wanted(topic.name):
                self._follow_subscription(wanted, arguments=arguments)

    def _resettle(self, node: Node) -> None:
        self._change(node, node.arguments, self._standing(node))

    def _hand_down(self, node: Node) -> None:
        """What a topic has, those that take from it have too."""
        if node.is_topic:
            self.subscriptions.resettle(node.name)
        for heir in node.subscriptions:
            if not heir.is_subscription:
                self._resettle(heir)

    def _add(
        self,
        name: str,
        arguments: dict[str, object],
        effective: Effective,
        shelf: QueueLog | None = None,
        user: str = "",
    ) -> Node:
        if shelf is None:
            self.ownership.check(user)
        node = self.engine.create(name, effective.settings, _definition(effective, arguments, user), shelf)
        node.arguments = arguments
        node.origins = dict(effective.origins)
        self.ownership.made(node, user)
        self._hold(node)
        if node.is_topic:
            self.subscriptions.topic_made(node)
        self.bridges.node_made(node)
        self._letters_go("", _place_in(arguments))
        self.on_create(node)
        return node

    def _topic(self, address: str) -> Node:
        node = self.resolve(address, "topic")
        if not node.is_topic:
            raise OperatorError(f"'{address}' is a queue: only topics have subscriptions")
        return node

    def _is_taken(self, name: str) -> bool:
        """Whether a queue, a topic or a subscription has that name, or had when it was set aside."""
        return self.engine.has(name) or self.aside.has(name)

    def _check_free(self, name: str) -> None:
        """ConflictError if a new node can't be called so because something is."""
        if name in self.engine.subscriptions:
            raise ConflictError(f"'{name}' is the name of a subscription: no queue or topic can have it")
        if name in self.engine.nodes:
            raise ConflictError(f"'{name}' exists already")
        self.aside.check(name)

    def _surviving_topic(self, address: str) -> Node | None:
        """The topic of a subscription that survived, made whether or not a client might; None where there
        can't be one.
        """
        node = self.engine.nodes.get(address)
        if node is None and address in self.own:
            node = self.resolve(address)
        if node is None and not address.startswith("$") and not self._is_taken(address):
            effective = self._tolerated(address, "topic", {}, "topic", NO_PARENTS)
            for fault in effective.faults:
                log.error("'%s' is there for a subscription that survived: %s", address, fault)
            node = self._add(address, {}, effective)
        return node if node is not None and node.is_topic else None

    def _of_subscription(
        self,
        wanted: SubscriptionKey,
        terms: Terms | None = None,
        arguments: Mapping[str, object] | None = None,
        without: Collection[Setting] = (),
    ) -> Effective:
        """What holds for a subscription; to many topics, what policies say of the pattern's text.

        ``arguments`` are the topic's, where they are to be others than it has.
        """
        policies, defaults = terms or (self.policies, self.defaults)
        if arguments is None:
            topic = self.engine.nodes.get(wanted.address)
            arguments = {} if topic is None else topic.arguments
        defaults = self.defaults_at(wanted.address, defaults)
        return policies.of_subscription(wanted.address, wanted.owner, arguments, defaults, without)

    def _standing_subscription(self, wanted: SubscriptionKey) -> Effective:
        """The same for one that has to be there, whatever is said of it."""
        return tolerated(lambda without: self._of_subscription(wanted, without=without))

    def _follow_subscription(
        self,
        wanted: SubscriptionKey,
        terms: Terms | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """OperatorError if it can't follow, but for one that goes without some settings already."""
        try:
            self._of_subscription(wanted, terms, arguments)
        except OperatorError:
            if not self._standing_subscription(wanted).faults:
                raise

    def _changed(self, node: Node) -> None:
        self.on_change(node)

    def _subscription_gone(self, node: Node) -> None:
        self.aside.empty_box(node.name)
        self.ownership.gone(node)
        self._totals.retire(node)
        self.on_delete(node)

    def _change(self, node: Node, arguments: dict[str, object], effective: Effective) -> None:
        self.engine.change(node, effective.settings)
        if effective.settings.durable or node.shelf is not None:
            self.engine.define(node, _definition(effective, arguments, self.ownership.user(node)))
        before, node.arguments = _place_in(node.arguments), arguments
        node.origins = dict(effective.origins)
        self.on_change(node)
        self._letters_go(before, _place_in(arguments))

    def _letters_go(self, before: str, after: str) -> None:
        """A node whose arguments name a place of dead letters came, changed or went: what holds at that place
        may be something else now.
        """
        if before == after:
            return
        self._letter_places[before] -= 1
        self._letter_places[after] += 1
        self._letter_places = +self._letter_places
        for place in (before, after):
            node = self.engine.nodes.get(place)
            if node is not None and not _is_own(node):
                self._resettle(node)
                self._hand_down(node)

    def _hold(self, node: Node) -> None:
        held = bool(self.holds.holding(node.name))
        if node.gate.held != held:
            self.engine.hold(node, held)

    def _keep_holds(self) -> None:
        self.engine.note(HOLDS, json.dumps(self.holds.rules).encode() if self.holds.rules else b"")

    def _held_by(self, node: Node) -> str:
        return self.holds.holding(node.address)

    def _apply_in_parts(
        self, wanted: Callable[[], PolicySet], defaults: BrokerDefaults | None = None
    ) -> Steps:
        """New policies for every node, in steps:

        1. what would hold for each node is worked out, and all of it refused where one can't follow;
        2. where policies were changed meanwhile this begins anew;
        3. the policies hold for nodes to come, and each node that is there takes them over. A node that was
           made or changed meanwhile has to do as well as it can.
        """
        while True:
            before = self.policies, self.defaults
            policies, terms = wanted(), defaults or self.defaults
            yield from self._planned(policies, terms)
            if self.policies is before[0] and self.defaults is before[1]:
                break
        self.policies, self.defaults = policies, terms
        changed: list[str] = []
        following = self._follow_all(changed)
        try:
            for _ in following:
                yield
        finally:
            # Not even a caller that goes away leaves half of the nodes with the policies before.
            for _ in following:
                pass
        return changed

    def _planned(
        self, policies: PolicySet, defaults: BrokerDefaults
    ) -> Generator[None, None, list[tuple[Node, Effective]]]:
        """What would hold for each node there is. OperatorError, with every reason, if one can't follow."""
        planned: list[tuple[Node, Effective]] = []
        problems: list[str] = []
        terms = policies, defaults
        for node in list(self.engine.nodes.values()):
            if _is_own(node) or node.deleted:
                continue
            try:
                planned.append((node, self._followed(node, terms=terms)))
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        for wanted in self.subscriptions.all_wanted():
            try:
                self._follow_subscription(wanted, terms)
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        if problems:
            raise OperatorError("\n".join(problems))
        return planned

    def _follow_all(self, changed: list[str]) -> Iterator[None]:
        """Every node, and every subscription, takes over what holds for it now: one after each ``next``."""
        for node in list(self.engine.nodes.values()):
            if _is_own(node) or node.deleted:
                continue
            effective = self._standing(node)
            if effective.settings != node.settings:
                self._change(node, node.arguments, effective)
                changed.append(node.name)
            node.origins = dict(effective.origins)
            yield
        yield from self.subscriptions.resettle_in_parts()

    def _queue_view(self, node: Node) -> QueueView:
        return queue_view(node, self._held_by(node), self.engine.now_ns)

    def _around(self, node: Node, store: str) -> WhyContext:
        """``store`` is what ``readiness`` says, asked once for all links."""
        engine = self.engine
        storing = engine.storing
        return WhyContext(
            now_ns=engine.now_ns,
            forecasts=self.forecasts,
            held_by=self._held_by(node),
            store=store,
            winding_down=engine.winding_down,
            behind_bytes=storing.store.behind_bytes if storing is not None and storing.behind else 0,
            deadlock=self.deadlocks.of(node),
        )

    def _why_node(self, node: Node, store: str) -> list[Why]:
        """Of every link of the node that waits; of a subscription, its topics' if it holds them back."""
        owners = [node] if not node.is_subscription else node.topics if node.gate.closed else []
        found: list[Why] = []
        for owner in owners:
            links = [link for link in self.links.producers(owner.name) if link.lacks_credit]
            around = self._around(owner, store)
            found += [reasons.of_producer(link, owner, around) for link in links[:MOST_TOLD]]
        for each in (node, *node.subscriptions):
            found += self._why_consumers(each, self.links.consumers(each.name), store, idle=False)
        return found

    def _advice(self, node: Node) -> list[Why]:
        """Settings of the node, or of its subscriptions, that should be others as it is used now."""
        engine = self.engine
        return [
            answer
            for each in (node, *node.subscriptions)[:MOST_TOLD]
            for answer in advice.of_node(each, self.links.consumers(each.name), engine.memory, engine.now_ns)
        ]

    def _why_consumers(self, node: Node, links: list[ConsumerView], store: str, *, idle: bool) -> list[Why]:
        around = self._around(node, store)
        noted = self.engine.is_noted(node)
        takers = [link for link in links if not link.browses]
        found = [reasons.of_consumer(link, node, takers, around, noted, idle=idle) for link in links]
        return [answer for answer in found if answer is not None]

    def _why_all(self, wanted: str, store: str) -> list[Why]:
        """Of every link that waits, or of those of a name or id, whether they wait or not."""
        senders = [
            link
            for link in self.links.producers(None)
            if wanted in (link.id, link.link) or (not wanted and link.lacks_credit)
        ]
        found: list[Why] = []
        for link in senders[:MOST_TOLD]:
            node = self.find(link.node)
            found.append(reasons.of_producer(link, node, self._around(node, store)))
        for name, links in _by_node(self.links.consumers(None)).items():
            if len(found) < MOST_TOLD and (
                not wanted or any(wanted in (link.id, link.link) for link in links)
            ):
                answers = self._why_consumers(self.find(name), links, store, idle=bool(wanted))
                found += [each for each in answers if not wanted or wanted in (each.link_id, each.link)]
        return reasons.merged(found)


def ended(steps: Generator[None, None, Answer]) -> Answer:
    """The answer, all steps taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


def _by_node(links: list[ConsumerView]) -> dict[str, list[ConsumerView]]:
    found: dict[str, list[ConsumerView]] = {}
    for link in links:
        found.setdefault(link.node, []).append(link)
    return found


def _check_new(name: str) -> None:
    """OperatorError if no new queue or topic may be called so."""
    check_name(name)
    if is_pattern(name):
        raise OperatorError(f"'{name}' stands for many topics: it can be subscribed, and be no node's name")


def _tell_faults(name: str, faults: Iterable[str]) -> None:
    for fault in faults:
        log.error("'%s' survived the restart, but not all that was set: %s", name, fault)


def _check_not_own(name: str, what: str) -> None:
    if is_own(name):
        raise OperatorError(f"'{name}' is the broker's own: it can be subscribed, and not be {what}")


def _definition(effective: Effective, arguments: Mapping[str, object], maker: str) -> bytes:
    kind = effective.settings.kind
    asked = kind if effective.origins.get("kind") == CAPABILITY else ""
    return Definition(kind, arguments, asked, maker).encode()


def _without_none(arguments: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in arguments.items() if value is not None}


def _changed_arguments(node: Node, arguments: Mapping[str, object]) -> dict[str, object]:
    """What a node was declared with, as these change it; None takes one back."""
    given = _without_none(arguments)
    explicit = {**node.arguments, **from_arguments(given)}
    for key in arguments.keys() - given.keys():
        if explicit.pop(ARGUMENTS.get(key, key), None) is None:
            raise OperatorError(f"'{node.name}' has no argument {key!r} to take back")
    return explicit


def _understood(name: str, arguments: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Stored arguments without those this version doesn't know, and what is wrong with each of these."""
    found: dict[str, object] = {}
    faults = []
    for key, value in arguments.items():
        try:
            normalise(from_arguments({**found, key: value}))
        except SettingError as fault:
            faults.append(f"{name}: {fault}")
        else:
            found[key] = value
    return found, faults


def _capability(node: Node) -> str:
    """The kind a client asked for when the node came to be, where that is what decided."""
    return node.kind if node.origins.get("kind") == CAPABILITY else ""


def _place_in(arguments: Mapping[str, object]) -> str:
    """Where a node's own arguments say that dead letters go; empty where they don't."""
    return str(arguments.get("dead_letter_address") or "")


def _is_own(node: Node) -> bool:
    """True for nodes of the broker's own, which no policy and no hold is about."""
    return node.name.startswith("$")
