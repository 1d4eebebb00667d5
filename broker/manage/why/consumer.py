"""What keeps a consumer link from being sent messages: its client, its windows, its place, or their lack.

Some of it is nobody's fault: ``QUIET`` are the causes of a link for which there simply is nothing.
"""

from __future__ import annotations

from broker.engine.grouping import groups_of
from broker.engine.node import Node
from broker.manage.grouped import most_stuck
from broker.manage.stats import waiting_msgs
from broker.manage.views import ConsumerView
from broker.manage.why.cause import GateCause
from broker.manage.why.delays import due_text
from broker.manage.why.reason import Reason, about, messages, suspension

WINDOW = "consumer_flow_limit"
CONNECTION = "connection_flow_limit"
CREDIT = "credit"  # the client asked for no more
SOCKET = "socket"  # the client doesn't read
LARGE = "large_message"  # one is on its way, and nothing else meanwhile
SINGLE_ACTIVE = "single_active"
UNNOTED = "store_note"  # that its messages may have been sent must be on disk before they are
PAGING = "paging"
PENDING = "pending"
SELECTOR = "selector"
UNDELIVERABLE = "undeliverable"
DISPATCH = "dispatch"
SHUTDOWN = "shutdown"
GROUP = "message_group"
HELD = "held"
EMPTY = "empty"
DELAYED = "delayed"  # all that nobody has wait for their time
SEEN = "seen"
STORE = "store"  # as of a producer: the cell's log doesn't answer

QUIET = frozenset((HELD, EMPTY, SEEN, DELAYED))


def of_consumer(
    link: ConsumerView,
    node: Node,
    siblings: list[ConsumerView],
    winding_down: bool,
    suspended: str,
    is_noted: bool,
    now_ns: int,
) -> Reason:
    """The one thing that keeps it from being sent messages; ``siblings`` are all consumers of the node.

    ``suspended`` says why the owner of a replicated cell sends nothing durable now; ``is_noted``: it is on
    disk that the node's messages may be sent.
    """
    waiting = waiting_msgs(node)
    if winding_down:
        return Reason(
            SHUTDOWN, "the broker is shutting down", "after a restart", GateCause(SHUTDOWN, waiting)
        )
    if suspended:
        return suspension(STORE, suspended, GateCause(STORE, waiting))
    return (
        _of_the_connection(link)
        or _of_the_windows(link, node, siblings)
        or _of_the_client(link, waiting)
        or _of_its_place(link, node, siblings, is_noted)
        or _of_the_messages(link, node, waiting, siblings, now_ns)
    )


def is_held_up(reason: Reason, link: ConsumerView, node: Node) -> bool:
    """Whether it would be sent something but for the reason; a shut window counts in any case."""
    if reason.cause in QUIET:
        return False
    return link.shut or link.connection_shut or waiting_msgs(node) > 0


def _of_the_connection(link: ConsumerView) -> Reason | None:
    if link.choked:
        text = f"its connection takes no more, {about(link.unsent_bytes)} wait for its client to read"
        return Reason(SOCKET, text, "when the client reads on", GateCause(SOCKET, link.unsent_bytes))
    if link.streaming:
        text = "a large message is on its way to it, and a link carries one at a time"
        return Reason(LARGE, text, "when all of that was sent", GateCause(LARGE))
    return None


def _of_the_windows(link: ConsumerView, node: Node, siblings: list[ConsumerView]) -> Reason | None:
    if link.shut and not link.presettled:
        text = f"{messages(link.unsettled)} unsettled, its window ({WINDOW}) is {link.window_limit:,}"
        bar = GateCause(WINDOW, link.unsettled, link.window_limit, link.reopen)
        settle = max(link.unsettled - link.reopen, 0)
        rate = node.rate_out * _share(link, siblings)
        frees = f"when {settle:,} of them are settled"
        return Reason(WINDOW, text, frees, bar, settle / rate if rate > 0 else None)
    if link.connection_shut and not link.presettled:
        unsettled, limit = link.connection_unsettled, link.connection_limit
        text = f"{messages(unsettled)} unsettled on its connection, {CONNECTION} is {limit:,}"
        bar = GateCause(CONNECTION, unsettled, limit, limit)
        return Reason(CONNECTION, text, "when one of them is settled", bar)
    return None


def _share(link: ConsumerView, siblings: list[ConsumerView]) -> float:
    """Its part of what all consumers of the node have settled."""
    if len(siblings) <= 1:
        return 1.0
    total = sum(each.settled for each in siblings)
    return link.settled / total if total else 1 / len(siblings)


def _of_the_client(link: ConsumerView, waiting: int) -> Reason | None:
    if link.credit > 0:
        return None
    text = f"its client gave no credit, {messages(waiting)} {'is' if waiting == 1 else 'are'} ready"
    return Reason(CREDIT, text, "when the client gives credit", GateCause(CREDIT, waiting))


def _of_its_place(
    link: ConsumerView, node: Node, siblings: list[ConsumerView], is_noted: bool
) -> Reason | None:
    if node.hot.single_active and not link.active and not link.browses:
        active = next((each for each in siblings if each.active), None)
        who = "another" if active is None else f"'{active.link}' of '{active.container}'"
        text = f"the node serves one consumer at a time ({SINGLE_ACTIVE}), which is {who}"
        return Reason(SINGLE_ACTIVE, text, "when that one detaches", GateCause(SINGLE_ACTIVE))
    if not is_noted:
        text = "it isn't on disk yet that messages of this node may have been sent"
        return Reason(UNNOTED, text, "when the disk has written that", GateCause(UNNOTED))
    return None


def _of_the_messages(
    link: ConsumerView, node: Node, waiting: int, siblings: list[ConsumerView], now_ns: int
) -> Reason:
    queue = node.queue
    if link.browses and (link.finished or node.gate.depth_msgs == 0):
        text = f"it looks and has seen all {messages(node.gate.depth_msgs)}"
        return Reason(SEEN, text, "when a message comes", GateCause(SEEN, node.gate.depth_msgs))
    if queue.gap and (link.selects or link.browses):
        return _of_the_search(link, node, waiting)
    if queue.ready:
        return _of_its_groups(link, node, siblings) or _of_what_is_ready(link, node)
    if queue.gap:
        fault = "" if node.spool is None else node.spool.read_fault
        text = f"{messages(waiting)} on disk" + (f" that can't be read: {fault}" if fault else ", being read")
        return Reason(
            PAGING,
            text,
            "when the disk can be read" if fault else "when they are",
            GateCause(PAGING, waiting),
        )
    if queue.pending:
        text = f"{messages(queue.pending)} on the way to disk first"
        return Reason(PENDING, text, "when the disk has them", GateCause(PENDING, queue.pending))
    if node.schedule is not None and node.schedule.count:
        count = node.schedule.count
        text = f"{messages(count)} of '{node.name}' wait for their time"
        text += ", all others are with consumers" if queue.acquired else ""
        return Reason(
            DELAYED, text, f"when the next is due{due_text(node, now_ns)}", GateCause(DELAYED, count)
        )
    if node.gate.depth_msgs:
        depth = node.gate.depth_msgs
        whose = "it" if link.unsettled >= depth else "consumers"
        text = f"every message of the {depth:,} queued is with {whose} already, unsettled"
        return Reason(HELD, text, "when a message comes, or one is given back", GateCause(HELD, depth))
    return Reason(EMPTY, f"'{node.name}' is empty", "when a message comes", GateCause(EMPTY))


def _of_the_search(link: ConsumerView, node: Node, waiting: int) -> Reason:
    """Of one that looks for what it wants, on disk too."""
    fault = None if node.spool is None else node.spool.look_fault
    left = f", {link.unseen_msgs:,} of them on disk still to be looked at" if link.unseen_msgs else ""
    if fault is not None and left:
        text = f"{messages(link.unseen_msgs)} on disk that can't be read: {fault}"
        return Reason(PAGING, text, "when the disk can be read", GateCause(PAGING, link.unseen_msgs))
    if link.unseen_msgs and not link.selects:
        text = f"{messages(link.unseen_msgs)} on disk, being read"
        return Reason(PAGING, text, "when they are", GateCause(PAGING, link.unseen_msgs))
    if link.finished or link.unseen_msgs:
        text = f"its selector matched none of {messages(waiting)}{left}"
        frees = "when it comes to one that it wants" if left else "when one comes that it wants"
        return Reason(SELECTOR, text, frees, GateCause(SELECTOR, waiting))
    return Reason(
        DISPATCH,
        f"{messages(waiting)} and nothing in its way",
        "with the next dispatch",
        GateCause(DISPATCH, waiting),
    )


def _of_its_groups(link: ConsumerView, node: Node, siblings: list[ConsumerView]) -> Reason | None:
    """Of a link at which nothing arrives since what is ready belongs to other consumers."""
    groups = groups_of(node)
    if groups is None or link.browses or groups.stuck < node.queue.ready:
        return None
    found = most_stuck(groups, link.id)
    if found is None:
        return None
    holder = next((each for each in siblings if each.id == found.link), None)
    if holder is None:
        whose = "which another consumer has" if found.link else "which no consumer has yet"
    else:
        whose = f"which '{holder.link}' of '{holder.container}' has"
    text = f"{messages(found.waiting)} {_wait(found.waiting)} for group '{found.group}', {whose}"
    if found.unsettled:
        text += f", with {found.unsettled:,} of it unsettled"
    rest = groups.stuck_groups - 1
    if rest > 0:
        text += f"; so do those of {rest:,} more groups"
    return Reason(GROUP, text, "when that consumer takes them, or detaches", GateCause(GROUP, groups.stuck))


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _of_what_is_ready(link: ConsumerView, node: Node) -> Reason:
    ready = node.queue.ready
    if link.finished:
        text = f"its selector wants none of the {messages(ready)} ready"
        return Reason(SELECTOR, text, "when one comes that it wants", GateCause(SELECTOR, ready))
    if node.queue.picky >= ready:
        text = f"it said of the {messages(ready)} ready that they are undeliverable to it"
        return Reason(
            UNDELIVERABLE, text, "when another consumer takes them", GateCause(UNDELIVERABLE, ready)
        )
    text = f"{messages(ready)} ready and nothing in its way"
    return Reason(DISPATCH, text, "with the next dispatch", GateCause(DISPATCH, ready))
