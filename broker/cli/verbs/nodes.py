"""Which nodes a broker has, for verbs that are given a name: whether it is there, and which one may be meant.

Questions of a verb that does something else: whoever may not ask them does it without the answer.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from broker.cli.terminal import ask
from broker.cli.terminal.printable import printable
from broker.errors import OperatorError, SluiceError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from broker.client.request import Management

KINDS = ("queue", "topic", "subscription")
# Names in which a similar one is looked for: beyond them it takes longer than the hint is worth.
MOST_NAMES = 20_000
PREFIXES = ("queue://", "topic://")
PATTERN = "*>#"


@dataclass(frozen=True, slots=True)
class AddressedNode:
    """What is, or would be, at an address."""

    name: str
    kind: str
    exists: bool


@contextmanager
def asking(args: argparse.Namespace) -> Iterator[Management | None]:
    """A broker's management; None where this user, or this broker, has none to ask."""
    management = None
    with suppress(SluiceError):
        management = ask.connect(args)
    try:
        yield management
    finally:
        if management is not None:
            management.close()


def at(management: Management | None, address: str, kind: str = "") -> AddressedNode | None:
    """The node that a client means by an address; None for a pattern, and where the broker may not be asked.
    ``kind`` is what it becomes if it isn't there, where the verb says so.
    """
    name = plain(address)
    if management is None or not name or name.startswith("$") or any(mark in name for mark in PATTERN):
        return None
    with suppress(SluiceError):
        answer = ask.operation(management, "explain", address=name)
        is_there = bool(answer.get("exists", True))
        found = str(answer.get("kind", "node"))
        return AddressedNode(name, found if is_there else kind or found, is_there)
    return None


def plain(address: str) -> str:
    """A node's name, as clients of other brokers write its address."""
    for prefix in PREFIXES:
        address = address.removeprefix(prefix)
    return address[1:] if address.startswith("/") and len(address) > 1 else address


def names(management: Management) -> Iterator[str]:
    """The names of every queue, topic and subscription."""
    for kind in KINDS:
        yield from (str(row["name"]) for row in ask.rows(management, kind, ("name",)))


def similar(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` where one of these names is like it, else nothing."""
    candidates = [each for each in known if each != name and not each.startswith("$")]
    close = get_close_matches(name, candidates, 1) if len(candidates) <= MOST_NAMES else []
    return f" (did you mean {printable(close[0])!r}?)" if close else ""


def require(management: Management, name: str) -> None:
    """OperatorError if nothing has that name, with one that is like it."""
    known = set(names(management))
    if name not in known:
        raise OperatorError(f"no queue, topic or subscription {name!r}{similar(name, known)}")


def tell_created(management: Management | None, verb: str, *wanted: AddressedNode | None) -> None:
    """A line on stderr for each node that was not there before the verb attached to it."""
    if management is None:
        return
    created = [node for node in wanted if node is not None and not node.exists]
    for node in created:
        hint = ""
        with suppress(SluiceError):
            others = {each.name for each in created}
            hint = similar(node.name, (each for each in names(management) if each not in others))
        text = f"created {node.kind} {printable(node.name)}, which was not there{hint}"
        print(f"sluice {verb}: {text}", file=sys.stderr, flush=True)


def why_blocked(management: Management | None, address: str, container: str) -> str:
    """What keeps this container's producer from sending, in the broker's words; empty if nobody knows."""
    if management is None:
        return ""
    with suppress(SluiceError):
        answers = cast("list[ask.Row]", ask.operation(management, "why", address=plain(address))["answers"])
        for answer in answers:
            if answer["subject"] == "producer" and answer["container"] == container:
                return printable(str(answer["sentence"]))
    return ""


def unrouted(management: Management | None, node: AddressedNode | None) -> int | None:
    """How many messages of a topic no subscription took; None of another node, or if nobody knows."""
    if management is None or node is None or node.kind != "topic":
        return None
    with suppress(SluiceError):
        return int(cast("int", ask.entity(management, "READ", node.kind, node.name)["unrouted"]))
    return None
