"""A selector's text, and behind a zero byte the message it is tried on; some ordinary ones are always tried
as well.
"""

from __future__ import annotations

from broker.errors import SelectorError
from broker.queues.selector import selector as compiled
from broker.queues.selector.condition import Selector
from tests.fuzz.messages import MESSAGES
from tests.fuzz.target import Target, expect
from tests.fuzz.twin import pure

python, pure_errors = pure("broker.queues.selector.selector", "broker.errors")
WORDS = """
AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE not like is
= <> != < <= > >= ( ) , + - * / % _ ' '' " . $
a colour JMSPriority JMSMessageID JMSTimestamp amqp.size amqp.priority amqp.to x-opt
1 0x7fffffffffffffff 9223372036854775808 1e308 1.5f 0x1p3 0b11 077 'red' '%e_' 1_000L
"""


def check(data: bytes) -> None:
    raw, _, tried = data.partition(b"\0")
    text = raw.decode("utf-8", "surrogateescape")
    try:
        found = compiled.compile_selector(text)
    except SelectorError as refusal:
        expect(1 <= refusal.column <= len(text) + 1, "a column outside of the text", refusal)
        _refused_as_python(text, str(refusal))
        return
    twin = python.compile_selector(text)
    opposite = _opposite(text)
    for each in (*MESSAGES, tried):
        answer = found.matches(each)
        expect(answer is True or answer is False, "neither matches nor doesn't", answer)
        expect(answer == twin.matches(each), "compiled and as Python it differs")
        expect(not (answer and opposite is not None and opposite.matches(each)), "it and its NOT both match")


def _refused_as_python(text: str, reason: str) -> None:
    try:
        python.compile_selector(text)
    except pure_errors.SelectorError as refusal:
        expect(str(refusal) == reason, "compiled and as Python it is refused differently", refusal)
        return
    raise AssertionError("compiled it is refused, as Python it isn't")


def _opposite(text: str) -> Selector | None:
    if not text.strip(compiled.SPACE):
        return None
    try:
        return compiled.compile_selector(f"NOT ({text})")
    except SelectorError:
        return None  # deeper or longer than may be


TARGET = Target(
    "selector",
    check,
    (
        "queues/selector/selector.py",
        "queues/selector/condition.py",
        "queues/selector/like.py",
        "queues/selector/identifiers.py",
    ),
    tuple(f"{word} ".encode() for word in WORDS.split()),
    largest=2048,
)
