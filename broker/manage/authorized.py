"""The model as one user may use it: each verb asks first, then does what the model does.

All three faces speak to this one; none of them decides who may do what. ``verbs.py`` has the rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import Signature, signature
from typing import Any, TypeVar, cast

from broker.errors import ForbiddenError
from broker.manage.access import INTERNAL, is_internal
from broker.manage.model import Model
from broker.manage.permissions import RequestPermissions
from broker.manage.verbs import INNER, VERBS, Call, Verb
from broker.security.acl import Action
from broker.security.identity import Identity

Part = TypeVar("Part")


class AuthorizedModel:
    """The model's parts for one identity; ForbiddenError from whatever it may not. Made for one request.

    A request may show afterwards the nodes it has made or changed.
    """

    def __init__(self, model: Model, identity: Identity = INTERNAL) -> None:
        self._model = model
        self._rights = RequestPermissions(model.engine, model.authority, model.ownership, identity)
        self._user = "" if is_internal(identity) else identity.user
        self.nodes = self._guarded("nodes", model.nodes)
        self.bridges = self._guarded("bridges", model.bridges)
        self.messages = self._guarded("messages", model.messages)
        self.readers = self._guarded("readers", model.readers)
        self.operators = self._guarded("operators", model.operators)
        self.policies = self._guarded("policies", model.policies)
        self.policy_reader = self._guarded("policy_reader", model.policy_reader)
        self.explanations = self._guarded("explanations", model.explanations)
        self.backups = self._guarded("backups", model.backups)
        self.log_levels = self._guarded("log_levels", model.log_levels)
        self.tracing = self._guarded("tracing", model.tracing)
        self.cluster = self._guarded("cluster", model.cluster)
        self.cells = self._guarded("cells", model.cells)
        self.diagnostics = self._guarded("diagnostics", model.diagnostics)
        self.queries = self._guarded("queries", model.queries)
        self.listing = self._guarded("listing", model.listing)

    def see_broker(self) -> None:
        """Raise ForbiddenError if they may not see the broker as a whole; any thread may ask."""
        self._rights.require_broker(Action.MANAGE_READ)

    def change_broker(self) -> None:
        """Raise ForbiddenError if they may not change the broker as a whole; any thread may ask."""
        self._rights.require_broker(Action.MANAGE_WRITE)

    def _guarded(self, name: str, part: Part) -> Part:
        """A stand-in for a part of the model, with its verbs and nothing else of it."""
        return cast("Part", GuardedPart(part, VERBS[name], self._call))

    def _call(self, part: object, name: str, verb: Verb, /, *args: object, **named: object) -> Any:
        bound = _signature(getattr(type(part), name)).bind(part, *args, **named)
        inner = INNER & bound.arguments.keys()
        if inner:
            raise TypeError(f"{name}() is not given {', '.join(sorted(inner))} from outside")
        bound.apply_defaults()
        call = Call(self._rights, self._user, self._model, bound.arguments)
        verb.check(call)
        bound.arguments.update({each: fill(call) for each, fill in verb.fill.items()})
        answer = verb.show(call, getattr(part, name)(*bound.args[1:], **bound.kwargs))
        self._rights.made.update(verb.makes(call))
        return answer


class GuardedPart:
    """A part of the model behind its rows of the table of verbs; ForbiddenError for all that has no row."""

    def __init__(self, part: object, verbs: Mapping[str, Verb], call: Callable[..., Any]) -> None:
        self._part = part
        self._verbs = verbs
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = self._verbs.get(name)
        if verb is None:
            raise ForbiddenError(f"'{name}' is nothing that a client may do")
        return partial(self._call, self._part, name, verb)


@cache
def _signature(method: Callable[..., Any]) -> Signature:
    return signature(method)
