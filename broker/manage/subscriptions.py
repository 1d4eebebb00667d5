"""The subscriptions to topics, and which of them last while their receivers are away.

A subscription is a queue of its own that belongs to the topics of its address: to one, or to all whose
names fit a pattern, those to come included. Receivers come back to it by its key: container and link
name (AMQP 1.0 §2.6.1), or, where it is shared, its name alone, as JMS 2.0 shares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from broker.config.patterns import Pattern, is_pattern, parse_pattern
from broker.config.policies import Effective
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, OperatorError
from broker.manage.names import LONGEST, placed
from broker.manage.ownership import Ownership
from broker.queues.filters import compiled
from broker.security.identity import ANONYMOUS
from broker.store.port import QueueLog

# How it is shared, container, name, and the user it belongs to.
Key = tuple[str, str, str, str]

# JMS clients number the links of one shared subscription behind this mark, and say there if it is global.
MARK = "|"
GLOBAL = "global"
# Whose those of routes are: no user's, for no name has such a character.
OF_THE_BROKER = "\0"


@dataclass(frozen=True, slots=True)
class SubscriptionKey:
    """The wish of a receiver. ``lasts``: it is kept while nobody is there; ``durable``: over a restart too;
    ``stays``: it outlives its link, if only until the session or the connection ends.

    ``filters`` are descriptors and texts, as in ``queues.filters``. ``user`` is whose it is alone, '' where
    it is anybody's who comes with its names.
    """

    address: str
    container: str
    link: str
    filters: tuple[tuple[str, str], ...] = ()
    no_local: bool = False
    shared: bool = False
    shared_by_all: bool = False
    lasts: bool = False
    durable: bool = False
    user: str = ""
    stays: bool = False

    @property
    def owner(self) -> str:
        """Return its owner as policies know it: container and link, or the name it is shared by."""
        name = self.link.partition(MARK)[0] if self.shared else self.link
        return name if self.shared_by_all or not self.container else f"{self.container}.{name}"

    @property
    def key(self) -> Key:
        """Return the key it is found by again."""
        if not self.shared:
            return "", self.container, self.link, self.user
        kind, name = "durable" if self.lasts else "shared", self.link.partition(MARK)[0]
        return (kind, "", name, "") if self.shared_by_all else (kind, self.container, name, self.user)

    def encode(self, name: str = "") -> bytes:
        """As the store keeps it; ``name`` is what the subscription is called, where its shelf isn't."""
        words = {each: getattr(self, each) for each in self.__slots__}
        called = {"name": name} if name else {}
        shown = {"kind": "subscription", **called, **words}
        return json.dumps(shown, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def decode(cls, definition: bytes, shelf_name: str) -> tuple[SubscriptionKey, str]:
        """Return the key of a subscription that survived, and its name.

        OperatorError if that can't be read.
        """
        try:
            words = json.loads(definition)
            words["filters"] = tuple((str(kind), str(text)) for kind, text in words["filters"])
            words.setdefault("user", "")
            words.setdefault("stays", True)
            name = str(words.get("name", shelf_name))
            return cls(**{key: words[key] for key in cls.__slots__}), name
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise OperatorError(f"the store's definition of '{shelf_name}' can't be read: {fault}") from None

    def is_like(self, other: SubscriptionKey) -> bool:
        """Whether it takes in the same messages."""
        ours = (self.address, self.filters, self.no_local)
        return ours == (other.address, other.filters, other.no_local)


class Subscription:
    """One of them: its node, who wanted it, and how many receivers are attached to it."""

    def __init__(self, node: Node, wanted: SubscriptionKey, key: Key) -> None:
        self.node = node
        self.wanted = wanted
        self.key = key
        self.receivers = 0
        self._call_off: Callable[[], object] | None = None

    def enter(self) -> None:
        """A receiver more: whatever was to end it while nobody was there doesn't."""
        self.receivers += 1
        self.called_off()

    def ends_later(self, call_off: Callable[[], object]) -> None:
        """Nobody is there and its end is set, in place of any before: ``call_off`` takes that back."""
        self.called_off()
        self._call_off = call_off

    def called_off(self) -> None:
        """It has no end to come any more, if it had one."""
        call_off, self._call_off = self._call_off, None
        if call_off is not None:
            call_off()


class Subscriptions:
    """All of them. ``topic`` makes the topic of an address; ``settings`` has what holds for what is wanted.

    ``on_remove`` is told of the node of each that went, ``on_change`` of each that has new settings.
    """

    def __init__(
        self,
        engine: Engine,
        topic: Callable[[str], Node],
        settings: Callable[[SubscriptionKey], Effective],
        on_remove: Callable[[Node], None],
        on_change: Callable[[Node], None],
    ) -> None:
        self._engine = engine
        self._topic = topic
        self._settings = settings
        self._on_remove = on_remove
        self._on_change = on_change
        self._known: dict[Key, Subscription] = {}
        self._patterns: dict[Node, Pattern] = {}
        self._number = 0
        # Those that survived a restart while their topic didn't.
        self._alone: set[Node] = set()
        # What holds for one that has to be there, and its topic: whatever is said of them now.
        self.standing = settings
        self.surviving: Callable[[str], Node | None] = topic
        # A subscription's name is nothing else's.
        self.is_taken: Callable[[str], bool] = lambda name: (
            name in engine.topology.subscriptions or name in engine.topology.nodes
        )
        # The names of those that were set aside, and why.
        self._aside: dict[Key, tuple[str, str]] = {}
        # No pattern of one virtual host means a topic of another.
        self.virtual_hosts: Collection[str] = ()
        self.ownership = Ownership()

    def join(
        self, wanted: SubscriptionKey, may_end: Callable[[SubscriptionKey], bool] | None = None
    ) -> Subscription:
        """The subscription a receiver asks for, one receiver more than before.

        What it had asked for under the same key is forgotten where it asks for other messages now (JMS
        2.0 §8.3.3), if it ``may_end`` that one. ConflictError where it may not, or where others are attached;
        LimitError where it is one too many of the user's; SelectorError where its filter is none.
        """
        known = self._find(wanted.key)
        if known is None and wanted.key in self._aside:
            name, reason = self._aside[wanted.key]
            raise ConflictError(f"subscription '{name}' was set aside when the broker started: {reason}")
        if known is not None and known.receivers and not wanted.shared and not wanted.lasts:
            # Receivers that never meant to come back; no two of them are one.
            known = None
            # Of a kind that no name asks for, or it would take the place of one that is called so.
            wanted_key = ("apart", wanted.container, f"{wanted.link} {self._next()}", wanted.user)
        else:
            wanted_key = wanted.key
        if known is not None:
            if known.receivers and not wanted.shared:
                raise ConflictError(f"subscription '{known.node.name}' has a receiver already")
            if not known.wanted.is_like(wanted):
                if may_end is not None and not may_end(known.wanted):
                    # It doesn't say to what: whoever asks need not have the right to know.
                    text = f"subscription '{wanted.owner}' is another user's, or of another virtual host"
                    raise ConflictError(text)
                if known.receivers:
                    text = f"subscription '{known.node.name}' is in use with another address or filter"
                    raise ConflictError(text)
                self.remove(known)
                known = None
        if known is None:
            known = self._make(wanted, wanted_key, self._name(wanted, wanted_key), None)
        elif not self.ownership.user(known.node):
            # It was to go with its link and counted for nobody; with this receiver it may stay.
            user = _maker(wanted)
            self.ownership.check(user)
            self.ownership.made(known.node, user)
        known.enter()
        return known

    def find(self, container: str, link: str, user: str = "") -> Subscription | None:
        """The one that lasts and that a link of this name, and this user, would come back to."""
        name, _, how = link.partition(MARK)
        owner = ("", name, "") if how.startswith(GLOBAL) else (container, name, user)
        for key in (("", container, link, user), ("durable", *owner)):
            known = self._find(key)
            if known is not None:
                return known
        return None

    def _find(self, key: Key) -> Subscription | None:
        """The user's own, or one that is anybody's."""
        return self._known.get(key) or self._known.get((*key[:3], ""))

    def leave(self, subscription: Subscription) -> None:
        """A receiver has gone; what becomes of the subscription is said by whoever knows why."""
        subscription.receivers -= 1

    def remove(self, subscription: Subscription) -> None:
        """It is gone with its backlog; nothing if it was, though another has its key by now."""
        if self._known.get(subscription.key) is not subscription:
            return
        del self._known[subscription.key]
        subscription.called_off()
        self._patterns.pop(subscription.node, None)
        self._engine.lifecycle.unsubscribe(subscription.node)
        self._on_remove(subscription.node)

    def forget(self, node: Node) -> None:
        """Its node was deleted by somebody else."""
        self._patterns.pop(node, None)
        for key, known in list(self._known.items()):
            if known.node is node:
                del self._known[key]
                known.called_off()

    def restore(self, wanted: SubscriptionKey, name: str, shelf: QueueLog) -> tuple[Node, tuple[str, ...]]:
        """One that survived a restart, empty, and what of its settings it goes without and why.

        ConflictError if its receiver would come back to another one, SelectorError if its filter is none.
        """
        if wanted.key in self._known:
            other = self._known[wanted.key].node.name
            raise ConflictError(f"its receiver comes back to another subscription, '{other}'")
        node = self._make(wanted, wanted.key, name, shelf).node
        faults = self.standing(wanted).faults
        if node in self._alone:
            faults += (f"there is no topic '{wanted.address}' to take from",)
        return node, faults

    def free_name(self, name: str) -> str:
        """Another name, like this one, that nothing bears."""
        while self.is_taken(found := f"{name[: LONGEST - 20]}/s{self._next()}"):
            pass
        return found

    def topic_made(self, topic: Node) -> None:
        """A new topic: patterns that fit its name take from it too."""
        for node, pattern in self._patterns.items():
            if self._means(pattern, topic):
                self._engine.topology.bind(topic, node)
        found = [node for node in self._alone if node.address == topic.name]
        self._alone.difference_update(found)
        for node in found:
            if not node.deleted:
                self._engine.topology.bind(topic, node)
        if found:
            self.resettle(topic.name)

    def set_aside(self, wanted: SubscriptionKey, name: str, reason: str) -> None:
        """One that survived can't be served: its receiver gets no other in its place meanwhile."""
        self._aside[wanted.key] = (name, reason)

    def discard(self, name: str) -> None:
        """One that was set aside is gone."""
        self._aside = {key: found for key, found in self._aside.items() if found[0] != name}

    def resettle(self, address: str = "") -> None:
        """Put changed settings into force, for all of them or for those of one address.

        All changes happen in one step each, so that no gate opens and closes on the way.
        """
        for _ in self.resettle_in_parts(address):
            pass

    def resettle_in_parts(self, address: str = "") -> Iterator[None]:
        """The same, one of them after each ``next``."""
        for known in list(self._known.values()):
            if known.node.deleted or (address and known.wanted.address != address):
                continue
            effective = self.standing(known.wanted)
            settings = replace(effective.settings, durable=known.wanted.durable)
            if settings != known.node.settings:
                self._engine.configurator.change(known.node, settings)
                self._on_change(known.node)
            known.node.origins = dict(effective.origins)
            yield

    def wanted(self, name: str) -> SubscriptionKey | None:
        """Return the key of a subscription by its name; None if there is none."""
        return next((each.wanted for each in self._known.values() if each.node.name == name), None)

    def of_the_broker(self) -> set[Node]:
        """The nodes of those that the broker takes from itself: its routes'."""
        return {known.node for known in self._known.values() if known.wanted.user == OF_THE_BROKER}

    def all_wanted(self, address: str = "") -> list[SubscriptionKey]:
        """Return the keys of all of them, or of those of one address."""
        return [known.wanted for known in self._known.values() if address in ("", known.wanted.address)]

    def _make(self, wanted: SubscriptionKey, key: Key, name: str, shelf: QueueLog | None) -> Subscription:
        engine = self._engine
        user = _maker(wanted)
        if shelf is None:
            self.ownership.check(user)
        keep = compiled(wanted.filters)
        pattern = parse_pattern(wanted.address) if is_pattern(wanted.address) else None
        if pattern is not None:
            topics = self._fitting(pattern)
        elif shelf is None:
            topics = [self._topic(wanted.address)]
        else:
            topics = [each for each in [self.surviving(wanted.address)] if each is not None]
        effective = self._settings(wanted) if shelf is None else self.standing(wanted)
        settings = replace(effective.settings, durable=wanted.durable)
        node = engine.lifecycle.subscribe(
            name, wanted.address, settings, wanted.encode() if wanted.durable else b"", shelf
        )
        node.filter = keep
        self.ownership.made(node, user)
        node.origins = dict(effective.origins)
        for topic in topics:
            engine.topology.bind(topic, node)
        if pattern is not None:
            self._patterns[node] = pattern
        elif not topics:
            self._alone.add(node)
        known = self._known[key] = Subscription(node, wanted, key)
        return known

    def _fitting(self, pattern: Pattern) -> list[Node]:
        return [node for node in self._engine.topology.nodes.values() if self._means(pattern, node)]

    def _means(self, pattern: Pattern, node: Node) -> bool:
        """Whether it stands for that topic too; never for the broker's own or one made for a link: who takes
        from those has to name them, and is asked for the right to that one.
        """
        if not node.is_topic or node.name.startswith("$") or not pattern.matches(node.name):
            return False
        hosts = self.virtual_hosts
        return not hosts or placed(pattern.text, hosts)[0] == placed(node.name, hosts)[0]

    def _name(self, wanted: SubscriptionKey, key: Key) -> str:
        """The address and who takes from it: of a lasting one its own name, else a number."""
        if not wanted.lasts and not wanted.shared:
            while self.is_taken(name := f"{wanted.address}/s{self._next()}"):
                pass
            return name
        owner = f"{key[1]}." if key[1] else ""
        name = "".join(each if each.isprintable() else "?" for each in f"{wanted.address}/{owner}{key[2]}")
        name = name[:LONGEST]
        return self.free_name(name) if self.is_taken(name) else name

    def _next(self) -> int:
        self._number += 1
        return self._number


def _maker(wanted: SubscriptionKey) -> str:
    """Among whose nodes it is counted; one that goes with its link is nobody's."""
    if not (wanted.lasts or wanted.stays) or wanted.user == OF_THE_BROKER:
        return ""
    return wanted.user or ANONYMOUS.user


def is_subscription(definition: bytes) -> bool:
    """Whether it is a subscription that the store's definition tells of; those come after their topics."""
    return b'"kind":"subscription"' in definition
