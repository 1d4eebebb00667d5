"""A selector's tree: what each of its nodes comes to for one message.

selector.py builds the tree once; here it is only evaluated, and nothing here knows the language. A value
is a bool, int, float or str, or None for NULL, which is *unknown* where a condition is meant. The rules
are those of JMS 2.0 §3.8.1.2 and §3.8.1.3:

1. Unknown spreads as in SQL: ``NOT`` of it is unknown, ``AND`` with false is false, ``OR`` with true is true.
2. Strings and booleans are only equal or not. Exact and approximate numbers compare as Java's long and
   double do: as doubles. Any other pair of unlike types makes the comparison false, whatever it is:
   ``<>``, NOT IN, NOT LIKE and NOT BETWEEN too. (``NOT (a = b)`` is a NOT of that false, so it is true.)
3. Arithmetic on exact numbers has Java's 64 bits and wraps; a quotient is cut off towards zero, and
   division by an exact zero, an exception in Java, is NULL. With an approximate number it is IEEE 754:
   infinities and NaN. Arithmetic with anything that is no number is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from broker.codec import message
from broker.codec.message import WantedFields
from broker.queues.selector.like import LikePattern

Value: TypeAlias = "bool | int | float | str | None"

EQUAL, NOT_EQUAL, LESS, AT_MOST, GREATER, AT_LEAST = range(6)
COMPARISONS = {
    "=": EQUAL,
    "<>": NOT_EQUAL,
    "!=": NOT_EQUAL,
    "<": LESS,
    "<=": AT_MOST,
    ">": GREATER,
    ">=": AT_LEAST,
}
EQUALITIES = ("=", "<>", "!=")
PLUS, MINUS, TIMES, OVER = range(4)
OPERATORS = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER}
# One more than Java's largest long.
LONG_RANGE = 2**63


class ConditionNode:
    """A part of the tree; ``places`` says where in the message its slots' values stand."""

    def value(self, data: bytes, places: list[int]) -> Value:
        raise NotImplementedError


class Selector:
    """Says of an encoded message whether it matches; decodes only what the tree asks for.

    A message that isn't whole where the selector has to look doesn't match.
    """

    def __init__(self, text: str, root: ConditionNode, wanted: WantedFields) -> None:
        self.text = text
        self.root = root
        self.wanted = wanted

    def matches(self, data: bytes) -> bool:
        places = message.value_places(data, self.wanted)
        return places is not None and self.root.value(data, places) is True


class Constant(ConditionNode):
    """A literal."""

    def __init__(self, literal: Value) -> None:
        self.literal = literal

    def value(self, data: bytes, places: list[int]) -> Value:
        return self.literal


class Property(ConditionNode):
    """An application property; NULL where there is none of the name or of a type that JMS knows."""

    def __init__(self, slot: int) -> None:
        self.slot = slot

    def value(self, data: bytes, places: list[int]) -> Value:
        at = places[self.slot]
        return message.value_at(data, at) if at >= 0 else None


class MessageField(ConditionNode):
    """A field of the header or the properties, as ``read`` understands it: given -1 where it is absent."""

    def __init__(self, slot: int, read: Callable[[bytes, int], Value]) -> None:
        self.slot = slot
        self.read = read

    def value(self, data: bytes, places: list[int]) -> Value:
        return self.read(data, places[self.slot])


class MessageSize(ConditionNode):
    """How many bytes the encoded message has."""

    def value(self, data: bytes, places: list[int]) -> Value:
        return len(data)


class Truth(ConditionNode):
    """A value where a condition is meant: unknown if it is no boolean."""

    def __init__(self, operand: ConditionNode) -> None:
        self.operand = operand

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        return found if found is True or found is False else None


class Not(ConditionNode):
    """NOT of a condition."""

    def __init__(self, operand: ConditionNode) -> None:
        self.operand = operand

    def value(self, data: bytes, places: list[int]) -> Value:
        return _negated(self.operand.value(data, places))


class And(ConditionNode):
    """Conditions between ANDs, from the left; what follows a false one isn't looked at."""

    def __init__(self, operands: list[ConditionNode]) -> None:
        self.operands = operands

    def value(self, data: bytes, places: list[int]) -> Value:
        answer: Value = True
        for operand in self.operands:
            found = operand.value(data, places)
            if found is False:
                return False
            if found is None:
                answer = None
        return answer


class Or(ConditionNode):
    """Conditions between ORs, from the left; what follows a true one isn't looked at."""

    def __init__(self, operands: list[ConditionNode]) -> None:
        self.operands = operands

    def value(self, data: bytes, places: list[int]) -> Value:
        answer: Value = False
        for operand in self.operands:
            found = operand.value(data, places)
            if found is True:
                return True
            if found is None:
                answer = None
        return answer


class Comparison(ConditionNode):
    """Two values and the sign between them."""

    def __init__(self, sign: str, left: ConditionNode, right: ConditionNode) -> None:
        self.comparison = COMPARISONS[sign]
        self.left = left
        self.right = right

    def value(self, data: bytes, places: list[int]) -> Value:
        left = self.left.value(data, places)
        if left is None:
            return None
        right = self.right.value(data, places)
        return None if right is None else _compare(self.comparison, left, right)


class Between(ConditionNode):
    """``BETWEEN``, both bounds included, or ``NOT BETWEEN``."""

    def __init__(
        self, operand: ConditionNode, low: ConditionNode, high: ConditionNode, negated: bool
    ) -> None:
        self.operand = operand
        self.low = low
        self.high = high
        self.negated = negated

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        if found is None:
            return None
        low = self.low.value(data, places)
        high = self.high.value(data, places)
        if self.negated:
            below = None if low is None else _compare(LESS, found, low)
            above = None if high is None else _compare(GREATER, found, high)
            return _either(below, above)
        above = None if low is None else _compare(AT_LEAST, found, low)
        below = None if high is None else _compare(AT_MOST, found, high)
        return _negated(_either(_negated(above), _negated(below)))


class In(ConditionNode):
    """``IN`` or ``NOT IN`` a list of literals."""

    def __init__(self, operand: ConditionNode, literals: list[Value], negated: bool) -> None:
        self.operand = operand
        self.texts = frozenset(literal for literal in literals if isinstance(literal, str))
        self.truths = frozenset(literal for literal in literals if isinstance(literal, bool))
        numbers = [literal for literal in literals if not isinstance(literal, str | bool)]
        self.numbers = [number for number in numbers if number is not None]
        self.negated = negated

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        if found is None:
            return None
        if type(found) is str:
            is_one, is_like = found in self.texts, len(self.texts) > 0
        elif type(found) is bool:
            is_one, is_like = found in self.truths, len(self.truths) > 0
        else:
            is_one, is_like = self._is_number(found), len(self.numbers) > 0
        return is_like and not is_one if self.negated else is_one

    def _is_number(self, found: Value) -> bool:
        return any(_compare(EQUAL, found, number) for number in self.numbers)


class Like(ConditionNode):
    """``LIKE`` or ``NOT LIKE`` a pattern."""

    def __init__(self, operand: ConditionNode, pattern: LikePattern, negated: bool) -> None:
        self.operand = operand
        self.pattern = pattern
        self.negated = negated

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        if found is None:
            return None
        if type(found) is not str:
            return False
        return self.pattern.matches(found) is not self.negated


class IsNull(ConditionNode):
    """``IS NULL`` or ``IS NOT NULL``: the one condition that is never unknown."""

    def __init__(self, operand: ConditionNode, negated: bool) -> None:
        self.operand = operand
        self.negated = negated

    def value(self, data: bytes, places: list[int]) -> Value:
        return (self.operand.value(data, places) is None) is not self.negated


class Arithmetic(ConditionNode):
    """Operands of one precedence, from the left: each after the first with its operator."""

    def __init__(self, first: ConditionNode, rest: list[tuple[str, ConditionNode]]) -> None:
        self.first = first
        self.operators = [OPERATORS[sign] for sign, _ in rest]
        self.operands = [operand for _, operand in rest]

    def value(self, data: bytes, places: list[int]) -> Value:
        total = self.first.value(data, places)
        for position, operand in enumerate(self.operands):
            right = operand.value(data, places)
            if not (_is_number(total) and _is_number(right)):
                return None
            total = _calculate(self.operators[position], total, right)
        return total


class Negative(ConditionNode):
    """A number with a minus before it."""

    def __init__(self, operand: ConditionNode) -> None:
        self.operand = operand

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        return negative(found) if _is_number(found) else None


class Positive(ConditionNode):
    """A number with a plus before it: itself, and NULL for anything else."""

    def __init__(self, operand: ConditionNode) -> None:
        self.operand = operand

    def value(self, data: bytes, places: list[int]) -> Value:
        found = self.operand.value(data, places)
        return found if _is_number(found) else None


def _negated(truth: Value) -> Value:
    return None if truth is None else truth is False


def _either(left: Value, right: Value) -> Value:
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def _is_number(found: Value) -> bool:
    return type(found) is int or type(found) is float


def _compare(comparison: int, left: Any, right: Any) -> bool:
    """Rule 2 above, for two values that aren't NULL."""
    if type(left) is not type(right):
        if not (_is_number(left) and _is_number(right)):
            return False
        left = float(left)
        right = float(right)
    if comparison == EQUAL:
        return bool(left == right)
    if comparison == NOT_EQUAL:
        return bool(left != right)
    return _is_number(left) and _is_ordered(comparison, left, right)


def _is_ordered(comparison: int, left: Any, right: Any) -> bool:
    if comparison == LESS:
        return bool(left < right)
    if comparison == AT_MOST:
        return bool(left <= right)
    return bool(left > right if comparison == GREATER else left >= right)


def _calculate(operator: int, left: Any, right: Any) -> Value:
    """Rule 3 above, for two numbers."""
    if type(left) is not type(right):
        left = float(left)
        right = float(right)
    if operator == OVER:
        return _ratio(left, right) if type(left) is float else _quotient(left, right)
    if operator == PLUS:
        return _wrapped(left + right)
    return _wrapped(left - right if operator == MINUS else left * right)


def _quotient(left: int, right: int) -> Value:
    if right == 0:
        return None
    size = abs(left) // abs(right)
    return _wrapped(size if (left < 0) == (right < 0) else -size)


def _ratio(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _wrapped(number: Any) -> Value:
    """An exact number in 64 bits, as Java's long; an approximate one as it is."""
    if type(number) is int and not -LONG_RANGE <= number < LONG_RANGE:
        return (number + LONG_RANGE) % (2 * LONG_RANGE) - LONG_RANGE
    return number  # type: ignore[no-any-return]


def negative(number: Any) -> Value:
    """Minus the number; of the smallest long that is itself, as in Java."""
    return _wrapped(-number)
