"""Sentences of `why` about messages that wait for their time: how many, when the next is due, the wave."""

from __future__ import annotations

from broker.engine.node import Node
from broker.manage.stats import parts_of
from broker.manage.why.reason import messages, span
from broker.queues.schedule import Schedule
from broker.units import SECOND_NS

# The wave that is told of: those that are due so soon, counted up to so many.
WAVE_NS = 60 * SECOND_NS
MOST_COUNTED = 10_000


def due_text(node: Node, now_ns: int) -> str:
    """Say in how long the next message is due: ``, in 5 s``; nothing where it is by now."""
    schedule = node.schedule
    next_ns = 0 if schedule is None else schedule.next_ns()
    return f", in {span((next_ns - now_ns) / SECOND_NS)}" if next_ns > now_ns else ""


def sentence_of(node: Node, now_ns: int) -> str:
    """Say how much of a node's depth waits for its time, and what is due soon; '' for nothing."""
    waiting = [each.schedule for each in parts_of(node) if each.schedule is not None and each.schedule.count]
    if not waiting:
        return ""
    count = sum(schedule.count for schedule in waiting)
    first = min(schedule.next_ns() for schedule in waiting)
    soon = sum(_due_soon(schedule, now_ns) for schedule in waiting)
    at_least = "at least " if soon >= MOST_COUNTED else ""
    when = f"in {span((first - now_ns) / SECOND_NS)}" if first > now_ns else "now"
    waits = "waits for its" if count == 1 else "wait for their"
    text = f" {messages(count)} of its depth {waits} time: the next is due {when}"
    return f"{text}, {at_least}{soon:,} within a minute." if soon else f"{text}."


def _due_soon(schedule: Schedule, now_ns: int) -> int:
    return schedule.count_due(now_ns + WAVE_NS, MOST_COUNTED)
