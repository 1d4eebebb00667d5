"""Selectors against a plain reading of JMS's rules, on random expressions, texts and messages."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from proton import Message

from broker.errors import SelectorError
from broker.queues.filters import DirectBinding, TopicBinding
from broker.queues.selector.like import LikePattern
from broker.queues.selector.selector import compile_selector

NAMES = ("a", "b", "c", "d.e", "$f")
WORDS = st.sampled_from(["", "a", "b", "ab", "aba", "it's", "%", "_", "ä𝄞", "a\nb"])
LONGS = st.one_of(
    st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**53 + 1, -(2**63)])
)
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**53]), st.floats())
PROPERTIES = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(
        st.none(), st.booleans(), LONGS, DOUBLES, WORDS, st.binary(max_size=3), st.just(uuid.UUID(int=7))
    ),
)


def encoded(properties: dict[str, Any], **fields: Any) -> bytes:
    return bytes(Message(properties=properties, **fields).encode())


# --- the plain reading: a node is its text and a function of the properties


class Said:
    """An expression as text, and what it comes to."""

    def __init__(self, text: str, of: Any) -> None:
        self.text = text
        self.of = of

    def __repr__(self) -> str:
        return self.text


def spelled(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def literal(value: Any) -> Said:
    return Said(spelled(value), lambda properties: value)


def known(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else None


def named(name: str) -> Said:
    return Said(name, lambda properties: known(properties.get(name)))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def wrapped(value: Any) -> Any:
    return value if isinstance(value, float) else ((value + 2**63) & (2**64 - 1)) - 2**63


def calculated(sign: str, left: Any, right: Any) -> Any:
    if not (is_number(left) and is_number(right)):
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if sign == "/" and isinstance(left, int):
        if right == 0:
            return None
        return wrapped((abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1))
    if sign == "/":
        if right != 0:
            return left / right
        if left == 0 or math.isnan(left):
            return math.nan
        return math.inf if (math.copysign(1, left) == math.copysign(1, right)) else -math.inf
    return wrapped({"+": left + right, "-": left - right, "*": left * right}[sign])


def compared(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if isinstance(left, float) != isinstance(right, float):
            left, right = float(left), float(right)
    elif type(left) is not type(right) or sign not in ("=", "<>", "!="):
        return False
    answers: dict[str, bool] = {
        "=": left == right,
        "<>": left != right,
        "!=": left != right,
        "<": is_number(left) and left < right,
        "<=": is_number(left) and left <= right,
        ">": is_number(left) and left > right,
        ">=": is_number(left) and left >= right,
    }
    return answers[sign]


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def both(*truths: bool | None) -> bool | None:
    return False if False in truths else None if None in truths else True


def either(*truths: bool | None) -> bool | None:
    return True if True in truths else None if None in truths else False


def fits(text: str, pattern: str) -> bool:
    translated = "".join({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(translated, text, re.DOTALL) is not None


@st.composite
def numbers(draw: st.DrawFn, depth: int = 2) -> Said:
    kind = draw(st.sampled_from(["name", "name", "long", "double", *(["sign", "negative"] if depth else [])]))
    if kind == "name":
        return named(draw(st.sampled_from(NAMES)))
    if kind == "long":
        return literal(draw(LONGS))
    if kind == "double":
        return literal(draw(DOUBLES.filter(math.isfinite)))
    left = draw(numbers(depth - 1))
    if kind == "negative":
        return Said(
            f"-({left})", lambda p: calculated("-", 0, left.of(p)) if left.of(p) != 0 else minus(left.of(p))
        )
    right = draw(numbers(depth - 1))
    sign = draw(st.sampled_from("+-*/"))
    return Said(f"({left} {sign} {right})", lambda p: calculated(sign, left.of(p), right.of(p)))


def minus(value: Any) -> Any:
    return -value if is_number(value) else None


VALUES = st.one_of(numbers(), WORDS.map(literal), st.booleans().map(literal))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Said:
    kinds = ["=", "<", "between", "in", "like", "null", "truth"]
    kind = draw(st.sampled_from(kinds + (["not", "and", "or"] * 2 if depth else [])))
    if kind == "not":
        inner = draw(conditions(depth - 1))
        return Said(f"NOT ({inner})", lambda p: negated(inner.of(p)))
    if kind in ("and", "or"):
        parts = draw(st.lists(conditions(depth - 1), min_size=2, max_size=3))
        join = both if kind == "and" else either
        return Said(
            f" {kind} ".join(f"({part})" for part in parts), lambda p: join(*(x.of(p) for x in parts))
        )
    if kind in ("=", "<"):
        sign = draw(st.sampled_from(["=", "<>", "!="] if kind == "=" else ["<", "<=", ">", ">="]))
        operands = VALUES if kind == "=" else numbers()
        left, right = draw(operands), draw(operands)
        return Said(f"{left} {sign} {right}", lambda p: compared(sign, left.of(p), right.of(p)))
    if kind == "truth":
        name = draw(st.sampled_from(NAMES))
        return Said(name, lambda p: p[name] if isinstance(p.get(name), bool) else None)
    return draw(predicates(kind))


@st.composite
def predicates(draw: st.DrawFn, kind: str) -> Said:
    negates = draw(st.booleans())
    word = "NOT " if negates else ""
    value = named(draw(st.sampled_from(NAMES))) if kind == "like" else draw(numbers())
    if kind == "null":
        return Said(f"{value} IS {word}NULL", lambda p: (value.of(p) is None) is not negates)
    if kind == "like":
        pattern = draw(st.text("ab%_", max_size=5))
        return Said(f"{value} {word}LIKE {spelled(pattern)}", lambda p: liked(value.of(p), pattern, negates))
    if kind == "between":
        low, high = draw(numbers()), draw(numbers())

        def within(p: dict[str, Any]) -> bool | None:
            found = value.of(p)
            if negates:
                return either(compared("<", found, low.of(p)), compared(">", found, high.of(p)))
            return both(compared(">=", found, low.of(p)), compared("<=", found, high.of(p)))

        return Said(f"{value} {word}BETWEEN {low} AND {high}", within)
    items = draw(st.lists(st.one_of(WORDS, LONGS, st.booleans()), min_size=1, max_size=4))
    text = ", ".join(spelled(item) for item in items)
    return Said(f"{value} {word}IN ({text})", lambda p: listed(value.of(p), items, negates))


def liked(found: Any, pattern: str, negates: bool) -> bool | None:
    if found is None:
        return None
    return isinstance(found, str) and fits(found, pattern) is not negates


def listed(found: Any, items: list[Any], negates: bool) -> bool | None:
    if found is None:
        return None
    like = [item for item in items if type(item) is type(found) or (is_number(item) and is_number(found))]
    is_one = any(compared("=", found, item) for item in like)
    return bool(like) and not is_one if negates else is_one


@given(conditions(), PROPERTIES)
def test_it_comes_to_what_the_rules_say(said: Said, properties: dict[str, Any]) -> None:
    data = encoded(properties)
    answer = said.of(properties)
    assert compile_selector(said.text).matches(data) is (answer is True)
    assert compile_selector(f"not ({said.text})").matches(data) is (answer is False)


@given(st.text("ab%_", max_size=8), st.text("ab\n", max_size=10))
def test_like_against_regular_expressions(pattern: str, text: str) -> None:
    assert LikePattern(pattern).matches(text) is fits(text, pattern)


SUBJECT_WORDS = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)


@given(st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=5).map(".".join), SUBJECT_WORDS)
@example("", "")
def test_topic_patterns_against_trying_everything(pattern: str, subject: str) -> None:
    def fit(keys: list[str], words: list[str]) -> bool:
        if not keys:
            return not words
        if keys[0] == "#":
            return any(fit(keys[1:], words[n:]) for n in range(len(words) + 1))
        return bool(words) and keys[0] in ("*", words[0]) and fit(keys[1:], words[1:])

    expected = fit(pattern.split(".") if pattern else [], subject.split(".") if subject else [])
    assert TopicBinding(pattern).matches(encoded({}, subject=subject)) is expected


# --- what nobody meant

PIECES = st.sampled_from(
    [
        *(
            "AND",
            "OR",
            "NOT",
            "BETWEEN",
            "IN",
            "LIKE",
            "ESCAPE",
            "IS",
            "NULL",
            "TRUE",
            "a",
            "b.c",
            '"d e"',
            '"',
        ),
        *("'x'", "'", "''", "5", "0x", "1.", ".", "1e", "9223372036854775808", "7L", "08"),
        *(
            "=",
            "<>",
            "!",
            "!=",
            "<",
            "<=",
            ">",
            "(",
            ")",
            ",",
            "+",
            "-",
            "*",
            "/",
            "%",
            "\x00",
            "amqp.to",
            "amqp.",
        ),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.lists(PIECES, max_size=15).map(" ".join),
    st.lists(PIECES, max_size=15).map("".join),
)


@given(TEXTS)
def test_any_text_is_a_selector_or_says_where_not(text: str) -> None:
    column = 1
    try:
        compiled = compile_selector(text)
    except SelectorError as refused:
        column = refused.column
    else:
        assert compiled.matches(encoded({"a": 1, "b.c": "x", "d e": True})) in (True, False)
    assert 1 <= column <= len(text) + 1


EVERYTHING = [
    compile_selector(
        "a = 'x' OR b > 5 OR \"colour\" LIKE '%r_d%' OR c IN ('y', 1) OR -d * 2 + 1 = 3 OR e IS NULL AND f"
    ),
    compile_selector(
        "JMSPriority > 3 OR JMSDeliveryMode = 'PERSISTENT' OR JMSMessageID = '7'"
        " OR JMSTimestamp + 1 > JMSExpiration OR JMSCorrelationID LIKE 'ID:%' OR JMSType = JMSDestination"
        " OR JMSXUserID = JMSReplyTo"
        " OR JMSXGroupSeq > JMSXDeliveryCount OR JMSXGroupID IS NULL OR JMSRedelivered OR amqp.ttl > AMQSize"
        " OR amqp.content_type = amqp.content_encoding OR amqp.reply_to_group_id = amqp.message_id"
        " OR amqp.correlation_id = 'x' OR amqp.first_acquirer"
    ),
    DirectBinding("x"),
    TopicBinding("a.#.*"),
]
WHOLE = bytearray(
    encoded(
        {"a": "y", "b": 2, "colour": "grd", "c": 2.5, "d": True, "e": None, "f": "x" * 300},
        durable=True,
        priority=2,
        ttl=3.0,
        delivery_count=1,
        id=uuid.UUID(int=9),
        user_id=b"me",
        address="to",
        subject="s",
        reply_to="r",
        correlation_id=b"\x01",
        creation_time=1.0,
        group_id="g",
        group_sequence=0,
        reply_to_group_id="h",
        body="hello",
    )
)


@pytest.mark.parametrize("asked", EVERYTHING)
@given(st.binary(max_size=40).map(lambda tail: b"\x00\x53" + tail) | st.binary(max_size=40))
def test_any_bytes_are_a_message_or_do_not_match(asked: Any, data: bytes) -> None:
    assert asked.matches(data) in (True, False)


@pytest.mark.parametrize("asked", EVERYTHING)
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4),
    st.integers(0, len(WHOLE)),
)
def test_a_message_with_faults_is_no_error(asked: Any, faults: list[tuple[int, int]], length: int) -> None:
    broken = bytearray(WHOLE)
    for place, value in faults:
        broken[place] = value
    assert asked.matches(bytes(broken)) in (True, False)
    assert asked.matches(bytes(broken[:length])) in (True, False)
