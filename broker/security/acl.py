"""Who may do what: rules in their order, of which the first that matches decides.

Where there is no rule, everything is allowed; where there is one, what none of them matches is denied.
Nothing here changes once it is made: another file makes another ``Acl``, which takes its place as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from broker.config.patterns import Words, covers, touches, words_of
from broker.security.identity import Identity
from broker.security.pattern import EVERYTHING, Template


class Action(StrEnum):
    """What somebody may want to do, in the words of the rules' file."""

    CONNECT = "connect"
    CREATE = "create"
    DELETE = "delete"
    SEND = "send"
    RECEIVE = "receive"
    BROWSE = "browse"
    PURGE = "purge"
    MOVE = "move"
    MANAGE_READ = "manage-read"
    MANAGE_WRITE = "manage-write"
    BACKUP = "backup"


# What rules call the nodes that belong to no virtual host.
COMMON = "/"
NO_RULES = "no rules: everything is allowed"
NO_MATCH = "no rule matches: denied"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether it is allowed, and the text of the rule that says so."""

    allowed: bool
    rule: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Empty ``users`` and ``groups`` are everybody, empty ``hosts`` all virtual hosts."""

    allows: bool
    actions: tuple[Action, ...]
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    addresses: tuple[Template, ...] = (EVERYTHING,)
    place: str = ""

    def concerns(self, identity: Identity, action: Action, virtual_host: str) -> bool:
        """Whether it speaks of that at any address at all."""
        if action not in self.actions or (self.hosts and (virtual_host or COMMON) not in self.hosts):
            return False
        if not self.users and not self.groups:
            return True
        return identity.user in self.users or not self.groups.isdisjoint(identity.groups)

    def __str__(self) -> str:
        every = len(self.actions) == len(Action)
        parts = ["allow" if self.allows else "deny", "all" if every else ", ".join(self.actions)]
        if self.addresses != (EVERYTHING,):
            parts += ["at", ", ".join(each.text for each in self.addresses)]
        who = [f"{word} {', '.join(sorted(names))}" for word, names in self._who() if names]
        parts += ["for", " and ".join(who)] if who else ["for everybody"]
        if self.hosts:
            parts += ["in", ", ".join(sorted(self.hosts))]
        return " ".join(parts)

    @property
    def told(self) -> str:
        """What it says and where it stands."""
        return f"{self.place}: {self}" if self.place else str(self)

    def _who(self) -> tuple[tuple[str, frozenset[str]], ...]:
        return ("user", self.users), ("group", self.groups)


class PermissionSet:
    """What the rules say of one identity and one action in one virtual host."""

    def __init__(self, rules: Iterable[Rule], user: str, open_to_all: bool = False) -> None:
        self._open = open_to_all
        self._rules: list[tuple[Rule, list[Words]]] = [
            (rule, [each.words(user) for each in rule.addresses]) for rule in rules
        ]

    def decide(self, address: str) -> Decision:
        """The decision on an address, or on all that fit a pattern.

        1. A rule that means all of it decides.
        2. A rule that denies a part of it denies the whole: nobody gets a pattern with a hole in it.
        3. A rule that allows a part leaves the rest to those behind it.
        """
        if self._open:
            return Decision(True, NO_RULES)
        wanted = words_of(address)
        for rule, patterns in self._rules:
            for words in patterns:
                if covers(words, wanted) or (not rule.allows and touches(words, wanted)):
                    return Decision(rule.allows, rule.told)
        return Decision(False, NO_MATCH)


@dataclass(frozen=True, slots=True)
class Acl:
    """All rules, in the order in which they stand in the file."""

    rules: tuple[Rule, ...] = ()

    def decide(self, identity: Identity, action: Action, virtual_host: str, address: str) -> Decision:
        """What holds for it; ``connect`` has the address ''."""
        return self.rights(identity, action, virtual_host).decide(address)

    def rights(self, identity: Identity, action: Action, virtual_host: str) -> PermissionSet:
        """The same for many addresses."""
        rules = [rule for rule in self.rules if rule.concerns(identity, action, virtual_host)]
        return PermissionSet(rules, identity.user, not self.rules)


OPEN = Acl()
