"""The verbs about policies: apply, try and reload them, and explain the settings they lead to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, fields

from broker.config.flow import BrokerDefaults
from broker.config.node import NodeSettings
from broker.config.policies import Effective, PolicySet
from broker.config.policy_files import parse_policies
from broker.engine.engine import Engine
from broker.engine.node import Node
from broker.errors import ConflictError, OperatorError
from broker.manage.address_settings import AddressSettings
from broker.manage.calls import ended
from broker.manage.effect import Effect, effect
from broker.manage.holds import ProducerHolds
from broker.manage.names import check_name, is_reserved
from broker.manage.nodes import Nodes
from broker.units import format_size

# Of policies in a request: so much is read in a second or two, and what is more belongs into a file.
LARGEST_TEXT = 256 << 10
# How long a text waits while another one is read: they are read one after the other.
READING_S = 2.0

# The names of the nodes that changed, once the last step is taken.
Steps = Generator[None, None, list[str]]


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
class Reread:
    """The broker's files as read again; ``take_over``, on the loop's thread, is for all but policies."""

    policies: PolicySet
    defaults: BrokerDefaults
    take_over: Callable[[], None]


class Policies:
    """The way in for new policies. ``on_reload`` reads the broker's files anew, on any thread."""

    def __init__(self, engine: Engine, settings: AddressSettings, nodes: Nodes, holds: ProducerHolds) -> None:
        self._engine = engine
        self._settings = settings
        self._nodes = nodes
        self._holds = holds
        self.on_reload: Callable[[], Reread] | None = None
        # One for trials: whoever may only see the broker keeps nobody from changing it.
        self._reading = {dry_run: threading.Lock() for dry_run in (True, False)}

    # --- applying

    def apply(self, policies: PolicySet, defaults: BrokerDefaults | None = None) -> list[str]:
        """Put new policies into force for every node, those that exist included: the names that changed.

        OperatorError, with every reason, if one of the nodes can't follow; then the old ones stand.
        """
        return ended(self._apply_in_parts(lambda: policies, defaults))

    def apply_in_parts(self, given: PolicySet) -> Steps:
        """Replace the policies of the same patterns by these, the others stay; otherwise as ``apply``.

        They hold until the policy files are read again. It is worked out in steps, and then done node by
        node, to its end even where nobody asks for the next step any more.
        """
        return self._apply_in_parts(lambda: self._with(given))

    def try_in_parts(self, given: PolicySet) -> Steps:
        """Work out which nodes ``apply_in_parts`` would change, and refuse as it does; nothing is changed."""
        planned = yield from self._planned(self._with(given), self._settings.defaults)
        return [node.name for node, each in planned if not node.deleted and each.settings != node.settings]

    def apply_text(self, text: str, file: str) -> list[str]:
        """``apply_in_parts`` of a text in hand, at once. ConfigError with all that is wrong in it."""
        return ended(self.apply_in_parts(parse_policies(text, file)))

    def try_text(self, text: str, file: str) -> list[str]:
        """``try_in_parts`` of a text in hand, at once. ConfigError with all that is wrong in it."""
        return ended(self.try_in_parts(parse_policies(text, file)))

    def read_text(self, text: str, file: str, dry_run: bool = False) -> PolicySet:
        """Read the policies of a text in hand, on any thread: it takes seconds where there are very many.

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

    # --- reading the broker's files again

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

    # --- seeing

    def explain(self, address: str) -> Explanation:
        """Return every setting at an address, its effective value and where it comes from."""
        settings = self._settings
        wanted = self._nodes.subscriptions.wanted(address)
        node = self._engine.topology.nodes.get(address)
        if wanted is not None:
            effective = settings.standing_subscription(wanted)
        else:
            check_name(address)
            effective = settings.at(address, {}) if node is None else settings.standing(node)
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

    # --- inside

    def _with(self, given: PolicySet) -> PolicySet:
        """The policies there are, and in place of those of the same patterns these."""
        replaced = {policy.key for policy in given.policies}
        kept = [policy for policy in self._settings.policies.policies if policy.key not in replaced]
        return PolicySet.of([*kept, *given.policies])

    def _apply_in_parts(
        self, wanted: Callable[[], PolicySet], defaults: BrokerDefaults | None = None
    ) -> Steps:
        """New policies for every node, in steps:

        1. what would hold for each node is worked out, and all of it refused where one can't follow;
        2. where policies were changed meanwhile this begins anew;
        3. the policies hold for nodes to come, and each node that is there takes them over. A node that was
           made or changed meanwhile has to do as well as it can.
        """
        settings = self._settings
        while True:
            before = settings.policies, settings.defaults
            policies, terms = wanted(), defaults or settings.defaults
            yield from self._planned(policies, terms)
            if settings.policies is before[0] and settings.defaults is before[1]:
                break
        settings.policies, settings.defaults = policies, terms
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
        """Work out what would hold for each node. OperatorError, with every reason, if one can't follow."""
        planned: list[tuple[Node, Effective]] = []
        problems: list[str] = []
        terms = policies, defaults
        for node in self._concerned():
            try:
                planned.append((node, self._settings.followed(node, terms=terms)))
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        for wanted in self._nodes.subscriptions.all_wanted():
            try:
                self._settings.check_subscription(wanted, terms)
            except OperatorError as refusal:
                problems.append(str(refusal))
            yield
        if problems:
            raise OperatorError("\n".join(problems))
        return planned

    def _follow_all(self, changed: list[str]) -> Iterator[None]:
        """Every node, and every subscription, takes over what holds for it now: one after each ``next``."""
        for node in self._concerned():
            effective = self._settings.standing(node)
            if effective.settings != node.settings:
                self._nodes.change(node, node.arguments, effective)
                changed.append(node.name)
            node.origins = dict(effective.origins)
            yield
        yield from self._nodes.subscriptions.resettle_in_parts()

    def _concerned(self) -> Iterator[Node]:
        """The queues and topics that policies are about, each as long as it is there when its turn comes."""
        for node in list(self._engine.topology.nodes.values()):
            if not is_reserved(node.name) and not node.deleted:
                yield node
