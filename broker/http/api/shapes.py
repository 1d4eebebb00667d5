"""The types of what is answered, made from the views and the table of attributes that fill them.

Every attribute may be missing: `fields` picks some, and a link has those of its role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from typing_extensions import TypedDict

from broker.manage.attributes import PREFIX, ROWS, path_of
from broker.manage.bindings import Binding
from broker.manage.bridges import BridgeView
from broker.manage.forwards import ChannelView, RouteView
from broker.manage.policy_view import PolicyView
from broker.manage.views import (
    BrokerView,
    ConnectionView,
    ConsumerView,
    Counters,
    ProducerView,
    QueueView,
    SessionView,
    StoreView,
)

NodeSettings: type = get_type_hints(QueueView)["settings"]

# Attributes whose value is no field of the view, or is shown in another form.
SPECIAL: Mapping[str, Any] = {
    "type": str,
    "role": str,
    "flowStoppedSince": str | None,
    "delayed_next": str | None,
    "oldest_transaction": str | None,
    "blockedSince": str | None,
    "opened": str | None,
    "since": str | None,
    "deadlocks": list[dict[str, Any]],
    "set_aside": list[dict[str, Any]],
}


def _shape(name: str, kind: str, *views: type) -> Any:
    """A type with the attributes of an entity type, each with its field's type."""
    hints: dict[str, Any] = {}
    for view in reversed((*views, Counters)):
        hints |= {key: _plain(hint) for key, hint in _hints(view).items()}
    types = {
        name: hints[path.rpartition(".")[2]] if (path := path_of(read)) else SPECIAL[name]
        for name, read in ROWS[PREFIX + kind].items()
    }
    made: Any = TypedDict(name, types, total=False)  # type: ignore[misc]
    made.__doc__ = f"An entity of the type org.sluice.{kind}"
    return made


def _hints(view: type) -> dict[str, Any]:
    """The types of its properties and fields."""
    properties = [(name, each.fget) for name, each in vars(view).items() if isinstance(each, property)]
    found = {name: get_type_hints(get).get("return", Any) for name, get in properties if get is not None}
    return found | get_type_hints(view)


def _plain(hint: Any) -> Any:
    """As JSON has it: a tuple is a list, a view of its own an object."""
    if is_dataclass(hint):
        return dict[str, Any]
    if getattr(hint, "__origin__", None) is tuple:
        return list[_plain(hint.__args__[0])]  # type: ignore[misc]
    return hint


Broker = _shape("Broker", "broker", BrokerView, StoreView)
Queue = _shape("Queue", "queue", QueueView, NodeSettings)
Topic = _shape("Topic", "topic", QueueView, NodeSettings)
Subscription = _shape("Subscription", "subscription", QueueView, NodeSettings)
BindingShape = _shape("Binding", "binding", Binding)
Bridge = _shape("Bridge", "bridge", BridgeView)
Route = _shape("Route", "route", RouteView)
Channel = _shape("Channel", "channel", ChannelView)
Connection = _shape("Connection", "connection", ConnectionView)
Session = _shape("Session", "session", SessionView)
PolicyShape = _shape("Policy", "policy", PolicyView)
Link = _shape("Link", "link", ProducerView, ConsumerView)


def page_of(shape: Any) -> Any:
    """The answer to a list."""
    return TypedDict(  # type: ignore[operator]
        f"{shape.__name__}Page", {"items": list[shape], "total": int, "offset": int, "limit": int}
    )
