"""A condition's tree, built by hand: three truths, comparisons, ranges and Java's arithmetic."""

from __future__ import annotations

import math

import pytest
from proton import Message

from broker.codec.message import WantedFields
from broker.queues.selector.condition import (
    And,
    Arithmetic,
    Between,
    Comparison,
    ConditionNode,
    Constant,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Or,
    Selector,
    Truth,
    Value,
)
from broker.queues.selector.like import LikePattern

TRUTHS = (True, False, None)
MOST = 2**63 - 1


def truth(node: ConditionNode) -> bool | None:
    """What a tree without fields comes to: None for unknown, which neither it nor its NOT lets through."""
    data = bytes(Message().encode())
    if Selector("", node, WantedFields()).matches(data):
        return True
    return False if Selector("", Not(node), WantedFields()).matches(data) else None


def compared(left: Value, sign: str, right: Value) -> bool | None:
    return truth(Comparison(sign, Constant(left), Constant(right)))


def is_value(node: ConditionNode, wanted: Value) -> bool:
    """Whether a tree comes to a string, a number or NULL."""
    found = IsNull(node, False) if wanted is None else Comparison("=", node, Constant(wanted))
    return truth(found) is True


@pytest.mark.parametrize("left", TRUTHS)
@pytest.mark.parametrize("right", TRUTHS)
def test_unknown_spreads_as_in_sql(left: bool | None, right: bool | None) -> None:
    both: list[ConditionNode] = [Constant(left), Constant(right)]
    either = None if None in (left, right) else left or right
    each = None if None in (left, right) else left and right
    assert truth(Or(both)) is (True if True in (left, right) else either)
    assert truth(And(both)) is (False if False in (left, right) else each)
    assert truth(Not(Constant(left))) is (None if left is None else not left)


@pytest.mark.parametrize("literal", [1, "true", None])
def test_no_other_value_is_a_truth(literal: Value) -> None:
    assert truth(Truth(Constant(literal))) is None


@pytest.mark.parametrize(
    ("left", "sign", "right", "meant"),
    [
        (1, "=", 1.0, True),
        (1, "<", 1.5, True),
        (2**53, "=", 2**53 + 1, False),
        (2**53 + 1, "=", 2.0**53, True),
        ("a", "=", "a", True),
        ("a", "<>", "b", True),
        (True, "!=", False, True),
        ("1", "<>", 1, False),
        (True, "=", 1, False),
        (None, "=", None, None),
        (math.nan, "=", math.nan, False),
        (math.nan, "<>", 1.0, True),
    ],
)
def test_comparisons(left: Value, sign: str, right: Value, meant: bool | None) -> None:
    assert compared(left, sign, right) is meant


@pytest.mark.parametrize(("operand", "meant"), [(1, True), (3, True), (4, False), ("2", False), (None, None)])
def test_between_takes_its_ends_in(operand: Value, meant: bool | None) -> None:
    assert truth(Between(Constant(operand), Constant(1), Constant(3), negated=False)) is meant


@pytest.mark.parametrize(("operand", "within"), [("a", True), ("c", False), (1, False), (None, None)])
def test_in_like_and_is_null(operand: Value, within: bool | None) -> None:
    assert truth(In(Constant(operand), ["a", "b"], False)) is within
    assert truth(Like(Constant(operand), LikePattern("a%"), False)) is within
    assert truth(IsNull(Constant(operand), False)) is (operand is None)
    assert truth(IsNull(Constant(operand), True)) is (operand is not None)


@pytest.mark.parametrize(
    ("left", "operator", "right", "result"),
    [
        (MOST, "+", 1, -MOST - 1),
        (-MOST - 1, "-", 1, MOST),
        (MOST, "*", 2, -2),
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (-MOST - 1, "/", -1, -MOST - 1),
        (1, "/", 0, None),
        (1.0, "/", 0, math.inf),
        (-1, "/", 0.0, -math.inf),
        ("1", "+", 1, None),
        (True, "+", 1, None),
        (None, "*", 2, None),
    ],
)
def test_arithmetic_is_java_s(left: Value, operator: str, right: Value, result: Value) -> None:
    assert is_value(Arithmetic(Constant(left), [(operator, Constant(right))]), result)


def test_the_least_number_has_no_opposite() -> None:
    assert is_value(Negative(Constant(-MOST - 1)), -MOST - 1)
    assert is_value(Negative(Constant(MOST)), -MOST)
    assert is_value(Negative(Constant("1")), None)
