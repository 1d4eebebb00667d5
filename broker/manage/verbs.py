"""The table of verbs: which of the model's methods a client may call, and the right each of them takes.

A method without a row is refused to everybody. A row's check comes before the look-up, so that a refusal
tells nobody what there is. A node's verbs need a right at its address, the broker's at `$broker`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.manage.access import EVENTS
from broker.manage.bridges import BridgeView, ends_of
from broker.manage.holds import EVERYTHING
from broker.manage.listing import NODE_TYPES
from broker.manage.model import Model
from broker.manage.permissions import RequestPermissions
from broker.security.acl import Action

# Parameters that a client's call can't give: the guard fills them in, or they keep their defaults.
INNER = frozenset({"user", "only", "anyway"})


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a verb: the caller's rights, the user it counts for, and the arguments by name."""

    rights: RequestPermissions
    user: str
    model: Model
    given: Mapping[str, Any]


Check = Callable[[Call], None]


def _as_it_is(call: Call, answer: Any) -> Any:
    return answer


@dataclass(frozen=True, slots=True)
class Verb:
    """One row: ``check`` raises ForbiddenError, ``fill`` gives arguments in place of the call's, ``show``
    strikes from the answer what the caller may not see; ``makes`` names the nodes it may show afterwards.
    """

    check: Check
    fill: Mapping[str, Callable[[Call], object]] = field(default_factory=dict)
    show: Callable[[Call, Any], Any] = _as_it_is
    makes: Callable[[Call], tuple[str, ...]] = lambda call: ()


# --- checks


def _at(action: Action, *parameters: str) -> Check:
    """Check a right at the addresses these parameters give."""

    def check(call: Call) -> None:
        for name in parameters:
            call.rights.require(action, call.given[name])

    return check


def _at_node(action: Action, parameter: str = "name") -> Check:
    """Check a right at a node; a subscription goes by its topic's address."""
    return lambda call: call.rights.require_node(action, call.given[parameter])


def _at_broker(action: Action) -> Check:
    return lambda call: call.rights.require_broker(action)


def _free(call: Call) -> None:
    """Anybody may ask: the answer holds what they may see."""


def _handling(call: Call) -> None:
    call.rights.require_handling(call.given["name"])


def _create(call: Call) -> None:
    call.rights.require(Action.CREATE, call.given["name"])
    call.rights.require_dead_letters(call.given["arguments"] or {})


def _update(call: Call) -> None:
    """Dead letters go where the settings say: whoever changes them can have the messages."""
    call.rights.require(Action.MANAGE_WRITE, call.given["name"])
    call.rights.require_own(Action.MANAGE_WRITE, call.given["name"])
    call.rights.require_dead_letters(call.given["arguments"])


def _bind(call: Call) -> None:
    call.rights.require_ends(call.given["source"], call.given["target"])


def _bridge_ends(call: Call) -> tuple[str, str]:
    return ends_of(call.given["name"], call.given["attributes"])


def _create_bridge(call: Call) -> None:
    call.rights.require_ends(*_bridge_ends(call))


def _delete_bridge(call: Call) -> None:
    """By the ends it has, or, where there is none of that name, by those in the name."""
    name = call.given["name"]
    known: list[BridgeView] = [each for each in call.model.bridges.views() if each.name == name]
    ends = [(each.source, each.target) for each in known] or [name.partition("->")[::2]]
    for end in ends[0]:
        call.rights.require(Action.MANAGE_WRITE, end)


def _move(call: Call) -> None:
    """Out of the one as with ``move``, into the other as with ``send``; only a real move makes its target."""
    call.rights.require_node(Action.MOVE, call.given["source"])
    call.rights.require(Action.SEND, call.given["target"])
    if not call.given["dry_run"]:
        call.rights.require_made(call.given["target"])


def _hold(call: Call) -> None:
    call.rights.require_pattern(Action.MANAGE_WRITE, call.given["target"] or EVERYTHING)


def _detach_link(call: Call) -> None:
    """At the link's nodes, else at the broker: a refusal tells neither which links there are, nor of what."""
    nodes = call.model.links.nodes_of(call.given["link_id"])
    if not nodes or not all(call.rights.allows_node(Action.MANAGE_WRITE, each) for each in nodes):
        call.rights.require_broker(Action.MANAGE_WRITE)


def _read_text(call: Call) -> None:
    """To try policies takes the right to see only."""
    call.rights.require_broker(Action.MANAGE_READ if call.given["dry_run"] else Action.MANAGE_WRITE)


def _why(call: Call) -> None:
    if call.given["name"]:
        call.rights.require_node(Action.MANAGE_READ, call.given["name"])


def _of_type(call: Call) -> None:
    call.rights.require_type(call.given["type_"])


def _read(call: Call) -> None:
    type_, name = call.given["type_"], call.given["name"]
    call.rights.require_type(type_)
    if type_ in NODE_TYPES and name not in call.rights.made:
        call.rights.require_node(Action.MANAGE_READ, name)


# --- arguments and answers


def _user(call: Call) -> object:
    return call.user


def _only(call: Call) -> object:
    return call.rights.only()


def _only_of_others(call: Call) -> object:
    """Nodes are checked by their names."""
    return None if call.given["type_"] in NODE_TYPES else call.rights.only()


def _found(call: Call) -> object:
    """The nodes they may see; the others are left out as if they were gone."""
    return [name for name in call.given["found"] if call.rights.sees_node(name)]


def _named(*parameters: str) -> Callable[[Call], tuple[str, ...]]:
    return lambda call: tuple(call.given[name] for name in parameters)


def _show_reasons(call: Call, answer: Any) -> Any:
    return [each for each in answer if call.rights.sees_node(each.node)]


def _show_keys(call: Call, answer: Any) -> Any:
    """None for those they may not see."""
    pairs = zip(call.given["found"], answer, strict=True)
    return [key if call.rights.sees_node(name) else None for name, key in pairs]


def _show_views(call: Call, answer: Any) -> Generator[None, None, list[object]]:
    found = yield from answer
    return [view for view in found if call.rights.sees(view)]


SEE, CHANGE = _at_broker(Action.MANAGE_READ), _at_broker(Action.MANAGE_WRITE)
BACK_UP = _at_broker(Action.BACKUP)
MADE_BY_USER: Mapping[str, Callable[[Call], object]] = {"user": _user}
SEEN_ONLY: Mapping[str, Callable[[Call], object]] = {"only": _only}

# The model's parts by name, and of each its verbs.
VERBS: Mapping[str, Mapping[str, Verb]] = {
    "nodes": {
        "create": Verb(_create, MADE_BY_USER, makes=_named("name")),
        "update": Verb(_update, makes=_named("name")),
        "delete": Verb(_at_node(Action.DELETE)),
        "find": Verb(_handling),
        "typed": Verb(_handling),
        "bind": Verb(_bind, MADE_BY_USER, makes=_named("source", "target")),
        "unbind": Verb(_at(Action.MANAGE_WRITE, "source", "target")),
        "discard": Verb(CHANGE),
    },
    "bridges": {
        "create": Verb(_create_bridge, MADE_BY_USER, makes=_bridge_ends),
        "delete": Verb(_delete_bridge),
    },
    "messages": {
        "purge": Verb(_at_node(Action.PURGE)),
        "move": Verb(_move, MADE_BY_USER),
        "browse": Verb(_at_node(Action.BROWSE)),
        "delayed": Verb(_at_node(Action.BROWSE)),
        "cancel": Verb(_at_node(Action.PURGE)),
        "groups": Verb(_at_node(Action.MANAGE_READ)),
        "reset_group": Verb(_at_node(Action.MANAGE_WRITE)),
    },
    "readers": {
        "listed": Verb(_at_node(Action.MANAGE_READ)),
        "forget": Verb(_at_node(Action.MANAGE_WRITE)),
    },
    "operators": {
        "hold": Verb(_hold),
        "holds": Verb(SEE),
        "close_connection": Verb(CHANGE),
        "detach_link": Verb(_detach_link),
    },
    "policies": {
        "apply_in_parts": Verb(CHANGE),
        "try_in_parts": Verb(SEE),
        "reload_in_parts": Verb(CHANGE),
    },
    "policy_reader": {
        "read_text": Verb(_read_text),
        "read_again": Verb(CHANGE),
    },
    "explanations": {
        "explain": Verb(_at_node(Action.MANAGE_READ, "address")),
        "effect": Verb(_at(Action.MANAGE_READ, "name")),
    },
    "backups": {
        "begin": Verb(BACK_UP),
        "is_done": Verb(BACK_UP),
    },
    "log_levels": {
        "effective": Verb(SEE),
        "change": Verb(CHANGE),
    },
    "tracing": {
        "order": Verb(CHANGE),
    },
    "cluster": {
        "status": Verb(SEE),
        "move": Verb(CHANGE),
    },
    "cells": {
        "move": Verb(CHANGE),
        "moved": Verb(SEE),
    },
    "diagnostics": {
        "why": Verb(_why, SEEN_ONLY, show=_show_reasons),
        "deadlocks": Verb(SEE),
        "audit": Verb(SEE),
        "events": Verb(lambda call: call.rights.require(Action.MANAGE_READ, EVENTS)),
    },
    "queries": {
        "query": Verb(_of_type, SEEN_ONLY),
        "read": Verb(_read, {"only": _only_of_others}),
        "history": Verb(_at_node(Action.MANAGE_READ)),
        "broker_history": Verb(SEE),
        "broker_in_parts": Verb(SEE),
    },
    "listing": {
        "nodes": Verb(_free, SEEN_ONLY),
        "of_topic": Verb(_at(Action.MANAGE_READ, "topic"), SEEN_ONLY),
        "keys": Verb(_free, show=_show_keys),
        "rows": Verb(_free, {"found": _found}),
        "others": Verb(_of_type, show=_show_views),
    },
}
