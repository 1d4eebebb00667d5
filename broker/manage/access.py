"""The rights of clients, asked in one place by all that act for somebody: AMQP's links, and the three faces.

An address here is a node's name in the broker; the virtual host it belongs to is read from it. What is
about no node is about the broker itself: `$broker`. Nodes made for a link have names nobody can foresee
and go by `$temporary`, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.errors import ForbiddenError
from broker.manage.names import LONGEST, placed
from broker.security.acl import OPEN, Acl, Action, Decision, PermissionSet
from broker.security.identity import BROKER as INTERNAL
from broker.security.identity import Identity

__all__ = ["BROKER", "EVENTS", "INTERNAL", "TEMPORARY", "AccessControl", "is_internal", "refusal"]

BROKER = "$broker"
TEMPORARY = "$temporary"
EVENTS = "$sluice/events"
# What is kept while the rules stand: so many decisions, and the rules for so many identities and actions.
MOST_DECISIONS, MOST_RIGHTS = 20_000, 2000

_PHRASES = {
    Action.CONNECT: "connect to",
    Action.SEND: "send to",
    Action.RECEIVE: "receive from",
    Action.MOVE: "move messages of",
    Action.MANAGE_READ: "see",
    Action.MANAGE_WRITE: "change",
    Action.BACKUP: "back up",
}


class AccessControl:
    """The rules that hold now, and what they were found to say.

    Any thread may ask; the reactor's replaces the rules.
    """

    def __init__(self, acl: Acl = OPEN, virtual_hosts: Sequence[str] = ()) -> None:
        self.acl = acl
        self.hosts = frozenset(virtual_hosts)
        self._rights: dict[tuple[Identity, Action, str], PermissionSet] = {}
        self._decisions: dict[tuple[Identity, Action, str, str], Decision] = {}

    def replace(self, acl: Acl, virtual_hosts: Sequence[str]) -> None:
        """Other rules, from now on."""
        self.acl = acl
        self.hosts = frozenset(virtual_hosts)
        self._rights, self._decisions = {}, {}

    @property
    def is_open(self) -> bool:
        """Whether there are no rules, so that nobody is refused anything."""
        return not self.acl.rules

    def allows(self, identity: Identity, action: Action, address: str) -> bool:
        """Whether they may."""
        return self.is_open or is_internal(identity) or self.decide(identity, action, address).allowed

    def require(self, identity: Identity, action: Action, address: str) -> None:
        """ForbiddenError if they may not; it says nothing of what there is."""
        if not self.allows(identity, action, address):
            raise ForbiddenError(refusal(identity, action, address))

    def visible(self, identity: Identity) -> Callable[[str], bool] | None:
        """Return what sorts out the addresses they may see; None where that is all."""
        if self.is_open or is_internal(identity):
            return None
        return lambda address: self.decide(identity, Action.MANAGE_READ, address).allowed

    def decide(self, identity: Identity, action: Action, address: str) -> Decision:
        """The decision, and the rule it comes from."""
        return self._decide(identity, action, *self._place_of(address))

    def connects(self, identity: Identity, virtual_host: str) -> Decision:
        """Whether they may open a connection there; the common virtual host is ''."""
        if is_internal(identity):
            return Decision(True, "a part of the broker")
        return self._decide(identity, Action.CONNECT, virtual_host, "")

    def _decide(self, identity: Identity, action: Action, host: str, address: str) -> Decision:
        decisions = self._decisions
        key = identity, action, host, address
        decision = decisions.get(key)
        if decision is None:
            decision = self._rights_of(identity, action, host).decide(address)
            if len(decisions) >= MOST_DECISIONS:
                decisions.clear()
            if len(address) <= LONGEST:  # no node has a longer name, and what is kept is bounded
                decisions[key] = decision
        return decision

    def _rights_of(self, identity: Identity, action: Action, host: str) -> PermissionSet:
        known = self._rights
        rights = known.get((identity, action, host))
        if rights is None:
            if len(known) >= MOST_RIGHTS:
                known.clear()
            rights = known[identity, action, host] = self.acl.rights(identity, action, host)
        return rights

    def _place_of(self, address: str) -> tuple[str, str]:
        """Its virtual host, '' for the common one, and what a client there calls it."""
        if address.startswith(f"{TEMPORARY}/"):
            return "", TEMPORARY
        return placed(address, self.hosts)


def is_internal(identity: Identity) -> bool:
    """Whether it is the broker itself. Its name alone is no proof: a certificate may say anything."""
    return identity.user == INTERNAL.user and identity.mechanism in ("", "ANONYMOUS")


def refusal(identity: Identity, action: Action, address: str) -> str:
    """Return the text of a refusal."""
    where = f" '{_shown(address)}'" if address else " this virtual host"
    return f"user '{_shown(identity.user)}' may not {_PHRASES.get(action, action)}{where}"


def _shown(text: str) -> str:
    """A name that neither ends a line nor commands a terminal, and no longer than a name may be."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in short)
