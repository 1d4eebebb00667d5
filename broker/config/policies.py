"""Resolution of policies: the settings of one node, and the file and line that each comes from.

A node takes each setting from the first of these that has it (FLOW §6):

1. the arguments it was created with, then the policy whose pattern is its own name;
2. the topics it is bound to: the policies that mean the topic and not the node itself;
3. the policies that match the node, most specific pattern first;
4. the broker's defaults.

A topic has what it was declared with as well as what its policies say, and of several topics the one that
was bound first and says something of a setting has its way. A subscription takes from the policies for
subscriptions first, then all that holds for its topic.

Kind and auto_create are never taken from a topic: a queue bound to a topic stays a queue. And a place
of dead letters has no default place for its own, and takes nothing about them from a wider pattern that
would drop them or send them to itself: they stay. The default place is a durable queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

from broker.config.flow import TAKES_DEAD_LETTERS, BrokerDefaults
from broker.config.node import NodeSettings, SettingError, normalise
from broker.config.node_types import Value
from broker.config.patterns import ONE, REST, Pattern
from broker.config.synonyms import from_arguments
from broker.config.thresholds import complete
from broker.config.yaml import SourcePlace

ARGUMENT = "argument"
CAPABILITY = "capability"

_NONE: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under the name ``NodeSettings`` gives it, and where it was set."""

    name: str
    value: Value
    origin: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that a file has for the addresses of a pattern; ``auto_create`` None where it has none."""

    pattern: Pattern
    settings: tuple[Setting, ...]
    auto_create: bool | None
    auto_create_origin: str
    place: SourcePlace
    of_subscriptions: bool = False

    @property
    def key(self) -> tuple[bool, str]:
        """The key that only one policy of a set may have."""
        return self.of_subscriptions, self.pattern.text


class ContradictionError(SettingError):
    """Settings that don't go together; without those of ``dispensable`` the others do."""

    def __init__(self, reason: str, names: Sequence[str], dispensable: Sequence[Setting]) -> None:
        super().__init__(reason, *names)
        self.dispensable = tuple(dispensable)


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings of one node. ``origins`` has a word on each of them, and on ``auto_create``.

    ``faults`` says what was left out because it contradicted the rest (``tolerated``).
    """

    settings: NodeSettings
    origins: dict[str, str]
    auto_create: bool
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Every policy, most specific first. Replaced as a whole, never changed.

    Those of one address are found by it, however many there are; of the others, those are looked at that
    begin with the address's first word, or with none.
    """

    policies: tuple[Policy, ...] = ()
    _by_address: dict[tuple[bool, str], list[Policy]] = field(init=False, repr=False, compare=False)
    _by_word: dict[str | None, list[Policy]] = field(init=False, repr=False, compare=False)
    _places: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_address: dict[tuple[bool, str], list[Policy]] = {}
        by_word: dict[str | None, list[Policy]] = {}
        for each in self.policies:
            words = each.pattern.words
            if each.pattern.of_one_address:
                by_address.setdefault((each.of_subscriptions, ".".join(words)), []).append(each)
            else:
                by_word.setdefault(None if words[0] in (ONE, *REST) else words[0], []).append(each)
        object.__setattr__(self, "_by_address", by_address)
        object.__setattr__(self, "_by_word", by_word)
        said = (setting for each in self.policies for setting in each.settings)
        places = frozenset(str(each.value) for each in said if each.name == "dead_letter_address")
        object.__setattr__(self, "_places", places)

    @classmethod
    def of(cls, policies: Iterable[Policy]) -> PolicySet:
        return cls(tuple(sorted(policies, key=lambda policy: policy.pattern.rank)))

    def matching(self, address: str) -> list[Policy]:
        """Find the policies for an address, most specific first."""
        return [
            each
            for each in self._candidates(False, address)
            if not each.of_subscriptions and each.pattern.matches(address)
        ]

    def matching_subscription(self, address: str, owner: str) -> list[Policy]:
        """Find the policies for a subscription, most specific first; ``owner`` is container.link."""
        return [
            each
            for each in self._candidates(True, address)
            if each.of_subscriptions and each.pattern.matches_subscription(address, owner)
        ]

    def effective(
        self,
        address: str,
        arguments: Mapping[str, object] = _NONE,
        defaults: BrokerDefaults | None = None,
        parents: Sequence[str] | Mapping[str, Mapping[str, object]] = (),
        capability: str = "",
        auto_create: bool = True,
        without: Collection[Setting] = (),
    ) -> Effective:
        """Resolve the settings of a node, created with these arguments and bound to these topics.

        ``parents`` are the topics' names, in the order they were bound, or with the arguments of each.
        ``capability`` is the kind a client's terminus asks for, where no policy has a word on it;
        ``auto_create`` the broker's own setting; settings in ``without`` are as if nobody had set them.
        ContradictionError, naming both origins, where two don't go together.
        """
        matching = self.matching(address)
        own: list[Sequence[Setting]] = [_from_arguments(arguments)]
        own += [each.settings for each in matching if each.pattern.literal]
        chosen = _chosen([*own, *self._inherited(matching, address, parents)], without)
        asked = defaults or BrokerDefaults()
        held = self._with_place(address, asked)
        of_address = _chosen(own, without)
        notes = _keep_dead_letters(address, chosen, of_address, held)
        if address == asked.dead_letter_address:
            chosen.setdefault("kind", Setting("kind", "queue", f"default ({TAKES_DEAD_LETTERS})"))
            durable = Setting("durable", True, f"default ({TAKES_DEAD_LETTERS})")
            # Last values that keep their place are of nodes that aren't durable.
            if "durable" in of_address or "last_value_position" in chosen:
                chosen.setdefault("durable", durable)
            else:
                chosen["durable"] = durable
        if capability in ("queue", "topic"):
            chosen.setdefault("kind", Setting("kind", capability, CAPABILITY))
        if "kind" not in arguments:
            # A node that is created in so many words has its kind among the arguments.
            held = held.of_auto_created(str(chosen["kind"].value) if "kind" in chosen else "queue")
        settings, origins = _completed(address, chosen, held)
        origins |= notes
        created, origins["auto_create"] = _auto_create(matching, auto_create)
        return Effective(settings, origins, created)

    def said(self, address: str) -> dict[str, Value]:
        """Collect the settings that policies have for an address, by the names of ``NodeSettings``."""
        layers = (policy.settings for policy in self.matching(address))
        return {name: each.value for name, each in _chosen(layers).items()}

    def of_subscription(
        self,
        address: str,
        owner: str,
        arguments: Mapping[str, object] = _NONE,
        defaults: BrokerDefaults | None = None,
        without: Collection[Setting] = (),
    ) -> Effective:
        """Resolve the settings of a subscription to a topic, or a pattern, that has these arguments.

        ``without`` and ContradictionError as for nodes.
        """
        layers: list[Iterable[Setting]] = []
        layers += [policy.settings for policy in self.matching_subscription(address, owner)]
        layers += [_by_topic(_from_arguments(arguments), address)]
        layers += [_by_topic(policy.settings, address) for policy in self.matching(address)]
        chosen = _chosen(layers, without)
        if _never_holds(chosen):
            chosen = {name: each for name, each in chosen.items() if name not in _HELD_BY}
        held = self._with_place(address, defaults or BrokerDefaults())
        if "kind" not in arguments:
            held = held.of_auto_created("topic")
        settings, origins = _completed(address, chosen, held)
        return Effective(settings, origins | {"kind": "receiver", "auto_create": "receiver"}, False)

    def _with_place(self, address: str, defaults: BrokerDefaults) -> BrokerDefaults:
        """Choose the defaults of a node: with its default place of dead letters or without one."""
        if address.startswith("$"):
            return defaults.without_letters("the node is the broker's own")
        if address == defaults.dead_letter_address or address in self._places:
            return defaults.without_letters(TAKES_DEAD_LETTERS)
        return defaults

    def _candidates(self, of_subscriptions: bool, address: str) -> Iterable[Policy]:
        """List all that may match, in order: a literal word, or the end, ranks before a mark in its place."""
        yield from self._by_address.get((of_subscriptions, address), ())
        yield from self._by_word.get(address.partition(".")[0], ())
        yield from self._by_word.get(None, ())

    def _inherited(
        self,
        matching: list[Policy],
        address: str,
        parents: Sequence[str] | Mapping[str, Mapping[str, object]],
    ) -> Iterable[Iterable[Setting]]:
        for parent in parents:
            if isinstance(parents, Mapping):
                yield _by_topic(_from_arguments(parents[parent]), parent)
            for policy in self.matching(parent):
                if not policy.pattern.matches(address):
                    yield _by_topic(policy.settings, parent)
        for policy in matching:
            yield policy.settings


def tolerated(settle: Callable[[Collection[Setting]], Effective]) -> Effective:
    """Resolve the settings of a node that has to be there, whatever is said of it.

    ``settle`` is told what to do without: of two settings that don't go together, the one that asks for
    less by itself. No message is lost by that, and ``faults`` has the reasons.
    """
    without: list[Setting] = []
    faults: list[str] = []
    while True:
        try:
            return replace(settle(without), faults=tuple(faults))
        except ContradictionError as fault:
            if not fault.dispensable:
                raise
            without += fault.dispensable
            names = " and ".join(each.name for each in fault.dispensable)
            faults.append(f"{fault}; it goes on without that {names}")


def _from_arguments(arguments: Mapping[str, object]) -> list[Setting]:
    given = normalise(from_arguments(arguments))
    return [Setting(name, item.value, ARGUMENT) for name, item in given.items()]


# What a node is itself: what takes from it may be something else.
_NOT_OF_PARTS = frozenset({"kind", "queue_type", "partitions", "cell"})


def _by_topic(settings: Iterable[Setting], topic: str) -> list[Setting]:
    return [
        Setting(setting.name, setting.value, f"{setting.origin} (by topic {topic})")
        for setting in settings
        if setting.name not in _NOT_OF_PARTS
    ]


def _chosen(layers: Iterable[Iterable[Setting]], without: Collection[Setting] = ()) -> dict[str, Setting]:
    chosen: dict[str, Setting] = {}
    for layer in layers:
        for setting in layer:
            if setting not in without:
                chosen.setdefault(setting.name, setting)
    return chosen


# Thresholds mean nothing to a subscription that never holds publishers: those of its topic, which may not
# even fit its limits, are left out.
_HELD_BY = ("flow_stop_count", "flow_resume_count", "flow_stop_size", "flow_resume_size")


def _never_holds(chosen: Mapping[str, Setting]) -> bool:
    said = {name: each.value for name, each in chosen.items()}
    if said.get("flow_control") is False or said.get("pending_message_limit"):
        return True
    return said.get("overflow") in ("ring", "drop_newest", "page")


# The settings that end the life of a message, or of an idle node.
_LIVES = ("message_ttl_ms", "max_ttl_ms", "expire_after_ms")
# The settings that say which messages become dead letters and where they go.
_DEAD_LETTERS = ("dead_letter_address", "dead_letter_expired", "max_delivery_count", "overflow")


def _keep_dead_letters(
    address: str, chosen: dict[str, Setting], own: Mapping[str, Setting], defaults: BrokerDefaults
) -> dict[str, str]:
    """Take from ``chosen`` the settings by which a node would send dead letters to itself, or drop those it
    has; return the origins to show instead.

    One pattern may name the place for all that it matches, the place included, and another limit the life of
    messages: dead letters stay there, and so does the place, whatever a wider pattern says of the life of
    messages and of idle nodes.
    ContradictionError where the node's own settings say so.
    """
    target = chosen.get("dead_letter_address")
    if target is None:
        if defaults.dead_letter_address or address.startswith("$"):
            return {}
        names = ["max_delivery_count"]
        if defaults.takes_letters():
            names += _LIVES
        dropped = [chosen.pop(name) for name in names if name in chosen and name not in own]
        return {each.name: f"default (none: {TAKES_DEAD_LETTERS}; not {each.origin})" for each in dropped}
    if target.value != address:
        return {}
    making = [chosen[name] for name in _DEAD_LETTERS if name in chosen and _makes_dead_letters(chosen[name])]
    if target.name in own:
        reason = f"{address}: dead_letter_address is the node itself (from {target.origin})"
        raise ContradictionError(reason, (target.name,), making)
    dropped = [chosen.pop(each.name) for each in making if each.name not in own]
    dropped += [chosen.pop(name) for name in _LIVES if name in chosen and name not in own]
    return {each.name: f"default ({each.origin} sends dead letters here)" for each in dropped}


def _makes_dead_letters(setting: Setting) -> bool:
    return setting.name != "overflow" or setting.value == "dead_letter"


def _completed(
    address: str, chosen: Mapping[str, Setting], defaults: BrokerDefaults
) -> tuple[NodeSettings, dict[str, str]]:
    try:
        completed = complete({name: setting.value for name, setting in chosen.items()}, defaults)
    except SettingError as error:
        raise _with_origins(address, error, chosen) from None
    origins = {}
    for each in fields(NodeSettings):
        setting, note = chosen.get(each.name), completed.notes.get(each.name, "")
        origins[each.name] = _origin(setting, note)
    return completed.settings, origins


def _origin(setting: Setting | None, note: str) -> str:
    if setting is None:
        return note
    return f"{setting.origin} ({note})" if note else setting.origin


def _with_origins(address: str, error: SettingError, chosen: Mapping[str, Setting]) -> ContradictionError:
    found = [chosen[name] for name in error.names if name in chosen]
    places = ", ".join(f"{each.name} from {each.origin}" for each in found)
    return ContradictionError(f"{address}: {error.reason} ({places})", error.names, found[:1])


def _auto_create(matching: list[Policy], default: bool) -> tuple[bool, str]:
    for policy in matching:
        if policy.auto_create is not None:
            return policy.auto_create, policy.auto_create_origin
    return default, "default"
