"""The language of JMS 2.0 message selectors (§3.8.1.1), the filter ``apache.org:selector-filter:string``.

Text in, tree out: what the tree comes to for a message is condition.py's, what the names mean is
identifiers.py's. The grammar, in its order of precedence::

    either    = both { OR both }
    both      = negation { AND negation }
    negation  = { NOT } predicate
    predicate = sum [ ( = | <> | != | < | <= | > | >= ) sum
                    | [NOT] BETWEEN sum AND sum
                    | [NOT] IN ( literal { , literal } )
                    | [NOT] LIKE string [ ESCAPE string ]
                    | IS [NOT] NULL ]
    sum       = product { ( + | - ) product }
    product   = signed { ( * | / ) signed }
    signed    = { + | - } operand
    operand   = literal | identifier | ( either )

Words are case-insensitive, identifiers are not. Beyond JMS, as qpidd and Artemis have it: dots in
identifiers, identifiers of any characters in double quotes, ``!=``, any operand before IN, LIKE and IS
NULL, and numbers and booleans in lists. What can't be right for any message (``colour + 'red'``,
``name > 'a'``, a value where a condition is meant) is refused, with the column. A text comes from a peer,
so it is bounded in length, depth and operands; evaluating it takes time in proportion to these.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from broker.codec.message import WantedFields
from broker.errors import SelectorError
from broker.queues.selector import condition
from broker.queues.selector.condition import COMPARISONS, EQUALITIES, ConditionNode, Selector, Value
from broker.queues.selector.identifiers import AMQP_PREFIX, FIELDS, SIZE
from broker.queues.selector.like import ANY_CHARACTER, ANY_TEXT, LikePattern

# Settable, for every selector compiled afterwards.
MAX_LENGTH = 8192
MAX_DEPTH = 64
MAX_OPERANDS = 1024

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"})
SPACE = " \t\n\f\r"
# What Java's Long.MIN_VALUE is without its minus: no number by itself.
_SMALLEST_SIZE = 2**63

_DIGITS = "[0-9](?:_*[0-9])*"
_HEX = "[0-9a-fA-F](?:_*[0-9a-fA-F])*"
# Java's literals (JLS 7 §3.10.1, §3.10.2): the first that fits is the longest.
_NUMBERS = re.compile(
    rf"(?P<hexfloat>0[xX](?:{_HEX}\.?(?:{_HEX})?|\.{_HEX})[pP][+-]?{_DIGITS}[fFdD]?)"
    rf"|0[xX](?P<hex>{_HEX})[lL]?"
    r"|0[bB](?P<binary>[01](?:_*[01])*)[lL]?"
    rf"|(?P<float>(?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?[fFdD]?"
    rf"|{_DIGITS}(?:[eE][+-]?{_DIGITS}[fFdD]?|[fFdD]))"
    rf"|(?P<exact>{_DIGITS})[lL]?"
)
_SIGNS = re.compile(r"<>|!=|<=|>=|[=<>()+\-*/,]")

# What a part of the tree is known to come to, whatever the message.
ANYTHING, CONDITION, NUMBER, TEXT = "a value", "a condition", "a number", "a string"


def compile_selector(text: str) -> Selector:
    """The selector that the text says; SelectorError, located, if it says none.

    An empty text is no selector (JMS 2.0 §3.8.1.1): it matches every message.
    """
    if not text.strip(SPACE):
        return Selector(text, condition.Constant(True), WantedFields())
    if len(text) > MAX_LENGTH:
        raise SelectorError(MAX_LENGTH + 1, f"longer than {MAX_LENGTH} characters", over=True)
    return _Parser(text).selector()


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the language; its kind is ``name``, ``string``, ``number``, ``end``, or a keyword or sign."""

    kind: str
    column: int
    shown: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node with what is known of it: its kind, where it stands, and the literal that it is, if it is one.

    ``form`` brings a literal that it is compared with to the form in which it shows its own value.
    """

    node: ConditionNode
    kind: str
    column: int
    literal: Value = None
    form: Callable[[str], str] = str


# --- words


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        character = text[at]
        if character in SPACE:
            at += 1
            continue
        if character in "'\"":
            token, at = _quoted(text, at)
        elif character in "0123456789" or (character == "." and text[at + 1 : at + 2] in tuple("0123456789")):
            token, at = _number(text, at)
        elif _begins_name(character):
            token, at = _word(text, at)
        else:
            match = _SIGNS.match(text, at)
            if match is None:
                raise SelectorError(at + 1, f"unexpected {character!r}")
            token, at = Token(match[0], at + 1, match[0]), match.end()
        yield token
    yield Token("end", len(text) + 1, "")


def _begins_name(character: str) -> bool:
    """Java's Character.isJavaIdentifierStart."""
    return character == "$" or character.isidentifier() or unicodedata.category(character) in ("Sc", "Pc")


def _continues_name(character: str) -> bool:
    """Java's Character.isJavaIdentifierPart, and the dot."""
    return character == "." or _begins_name(character) or f"a{character}".isidentifier()


def _end_of_name(text: str, at: int) -> int:
    while at < len(text) and _continues_name(text[at]):
        at += 1
    return at


def _word(text: str, at: int) -> tuple[Token, int]:
    end = _end_of_name(text, at)
    word = text[at:end]
    # Of other letters some have an ASCII capital: the dotless i's is I.
    keyword = word.upper() if word.isascii() else ""
    kind = keyword if keyword in KEYWORDS else "name"
    return Token(kind, at + 1, word, word), end


def _quoted(text: str, at: int) -> tuple[Token, int]:
    """A string in single quotes or an identifier in double ones; the quote itself is doubled inside."""
    quote = text[at]
    kind = "string" if quote == "'" else "name"
    pieces = []
    end = at + 1
    while True:
        close = text.find(quote, end)
        if close < 0:
            raise SelectorError(
                at + 1, f"a {'string' if kind == 'string' else 'name'} without its closing {quote}"
            )
        pieces.append(text[end:close])
        end = close + 1
        if text[end : end + 1] != quote:
            break
        end += 1
    value = quote.join(pieces)
    if kind == "name" and not value:
        raise SelectorError(at + 1, "an empty name")
    try:
        value.encode()
    except UnicodeEncodeError as fault:
        raise SelectorError(at + 1, "half a surrogate pair is no character") from fault
    return Token(kind, at + 1, text[at:end], value), end


def _number(text: str, at: int) -> tuple[Token, int]:
    match = _NUMBERS.match(text, at)
    end = at if match is None else match.end()
    if match is None or (end < len(text) and _continues_name(text[end])):
        raise SelectorError(
            at + 1, f"{_short(text[at : _end_of_name(text, max(end, at + 1))])!r} is no number"
        )
    return Token("number", at + 1, match[0], _number_value(match, at + 1)), end


def _number_value(match: re.Match[str], column: int) -> int | float:
    spelled = match[0].replace("_", "")
    if match["hexfloat"] or match["float"]:
        return _approximate(spelled, column, bool(match["hexfloat"]))
    digits, base = match["exact"], 10
    if match["hex"] or match["binary"]:
        digits, base = (match["hex"], 16) if match["hex"] else (match["binary"], 2)
    elif digits[0] == "0" and len(digits) > 1:
        base = 8
        if "8" in digits or "9" in digits:
            raise SelectorError(
                column, f"{_short(spelled)!r} is no octal number, as its leading 0 says it is"
            )
    significant = digits.replace("_", "").lstrip("0") or "0"
    # As long as these 64 bits can be; int() itself refuses thousands of decimal digits.
    value = int(significant, base) if len(significant) <= 64 else 2**64
    if base != 10 and _SMALLEST_SIZE <= value < 2**64:
        return value - 2**64
    if value > _SMALLEST_SIZE:
        raise SelectorError(column, f"{_short(spelled)!r} is too large: exact numbers have 64 bits")
    return value


def _approximate(spelled: str, column: int, is_hex: bool) -> float:
    single = spelled[-1] in "fF"
    bare = spelled.rstrip("fFdD") if not is_hex else re.sub("[fFdD]$", "", spelled)
    try:
        value = float.fromhex(bare) if is_hex else float(bare)
        if single:
            value = float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        value = float("inf")
    if value == float("inf"):
        raise SelectorError(column, f"{_short(spelled)!r} is too large")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:21] + "..."


# --- sentences


class _Parser:
    """One text on its way to a tree: a method per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.position = 0
        self.depth = 0
        self.operands = 0
        self.wanted = WantedFields()

    def selector(self) -> Selector:
        part = self._either()
        if self._next.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return Selector(self.text, self._condition(part), self.wanted)

    @property
    def _next(self) -> Token:
        return self.tokens[self.position]

    def _take(self, *kinds: str) -> Token | None:
        """The next token if it is one of these."""
        token = self._next
        if token.kind not in kinds:
            return None
        self.position += 1
        return token

    def _need(self, kind: str, what: str = "") -> Token:
        token = self._take(kind)
        if token is None:
            raise self._unexpected(what or kind)
        return token

    def _unexpected(self, expected: str) -> SelectorError:
        token = self._next
        shown = _short(token.shown)
        found = "the end" if token.kind == "end" else shown if token.kind == "string" else f"'{shown}'"
        return SelectorError(token.column, f"expected {expected}, not {found}")

    def _either(self) -> TypedNode:
        return self._joined("OR", self._both, condition.Or)

    def _both(self) -> TypedNode:
        return self._joined("AND", self._negation, condition.And)

    def _joined(
        self,
        word: str,
        operand: Callable[[], TypedNode],
        join: Callable[[list[ConditionNode]], ConditionNode],
    ) -> TypedNode:
        first = operand()
        if self._next.kind != word:
            return first
        nodes = [self._condition(first)]
        while self._take(word):
            nodes.append(self._condition(operand()))
        return TypedNode(join(nodes), CONDITION, first.column)

    def _negation(self) -> TypedNode:
        start = self._next
        negations = 0
        while self._take("NOT"):
            negations += 1
        part = self._predicate()
        if negations == 0:
            return part
        node = self._condition(part)
        return TypedNode(condition.Not(node) if negations % 2 else node, CONDITION, start.column)

    def _condition(self, part: TypedNode) -> ConditionNode:
        if part.kind == CONDITION:
            return part.node
        if part.kind != ANYTHING:
            raise SelectorError(part.column, f"expected a condition, not {part.kind}")
        return condition.Truth(part.node)

    def _predicate(self) -> TypedNode:
        part = self._sum()
        token = self._take(*COMPARISONS)
        if token is not None:
            node = self._comparison(part, token, self._sum())
        elif self._take("IS"):
            negated = self._take("NOT") is not None
            self._need("NULL")
            node = condition.IsNull(part.node, negated)
        else:
            negated = self._take("NOT") is not None
            if self._take("BETWEEN"):
                node = self._between(part, negated)
            elif self._take("IN"):
                node = condition.In(part.node, self._literals(part.form), negated)
            elif self._take("LIKE"):
                node = self._like(part, negated)
            elif negated:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return part
        return TypedNode(node, CONDITION, part.column)

    def _comparison(self, left: TypedNode, sign: Token, right: TypedNode) -> ConditionNode:
        if sign.kind not in EQUALITIES:
            for part in (left, right):
                self._number(
                    part, f"strings and conditions can only be compared by = and <>, not by {sign.kind}"
                )
        return condition.Comparison(sign.kind, _in_form(left, right), _in_form(right, left))

    def _number(self, part: TypedNode, why: str) -> ConditionNode:
        if part.kind not in (NUMBER, ANYTHING):
            raise SelectorError(part.column, f"{why}" if why else f"expected a number, not {part.kind}")
        return part.node

    def _between(self, part: TypedNode, negated: bool) -> ConditionNode:
        low = self._sum()
        self._need("AND")
        high = self._sum()
        value, least, most = (self._number(each, "") for each in (part, low, high))
        return condition.Between(value, least, most, negated)

    def _literals(self, form: Callable[[str], str]) -> list[Value]:
        self._need("(", "'('")
        literals: list[Value] = []
        while True:
            part = self._signed()
            if part.literal is None:
                raise SelectorError(part.column, "a list holds literals only")
            literals.append(form(part.literal) if isinstance(part.literal, str) else part.literal)
            if not self._take(","):
                self._need(")", "',' or ')'")
                return literals

    def _like(self, part: TypedNode, negated: bool) -> ConditionNode:
        if part.kind not in (TEXT, ANYTHING):
            raise SelectorError(part.column, f"expected a string, not {part.kind}")
        pattern = self._need("string", "a pattern in single quotes")
        escape = ""
        if self._take("ESCAPE"):
            token = self._need("string", "an escape character in single quotes")
            escape = str(token.value)
            if len(escape) != 1 or escape in (ANY_TEXT, ANY_CHARACTER):
                raise SelectorError(token.column, "an escape is one character, and neither % nor _")
        try:
            made = LikePattern(str(pattern.value), escape)
        except ValueError as fault:
            raise SelectorError(pattern.column, str(fault)) from fault
        return condition.Like(part.node, made, negated)

    def _sum(self) -> TypedNode:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> TypedNode:
        return self._chain(("*", "/"), self._signed)

    def _chain(self, operators: tuple[str, str], operand: Callable[[], TypedNode]) -> TypedNode:
        first = operand()
        rest: list[tuple[str, ConditionNode]] = []
        while True:
            token = self._take(*operators)
            if token is None:
                break
            if not rest:
                self._number(first, "")
            rest.append((token.kind, self._number(operand(), "")))
        return TypedNode(condition.Arithmetic(first.node, rest), NUMBER, first.column) if rest else first

    def _signed(self) -> TypedNode:
        start = self._next
        signs = []
        while True:
            sign = self._take("+", "-")
            if sign is None:
                break
            signs.append(sign.kind)
        if signs and signs[-1] == "-" and self._next.value == _SMALLEST_SIZE and self._next.kind == "number":
            signs.pop()
            self.position += 1
            self._count(start)
            part = _literal(-_SMALLEST_SIZE, start.column)
        else:
            part = self._operand()
        if not signs:
            return part
        self._number(part, "")
        negative = signs.count("-") % 2 == 1
        if part.literal is not None:
            return _literal(condition.negative(part.literal) if negative else part.literal, start.column)
        node = condition.Negative(part.node) if negative else condition.Positive(part.node)
        return TypedNode(node, NUMBER, start.column)

    def _operand(self) -> TypedNode:
        token = self._next
        if token.kind == "(":
            return self._nested()
        if token.kind not in ("name", "string", "number", "TRUE", "FALSE"):
            raise self._unexpected("a value")
        self.position += 1
        self._count(token)
        if token.kind == "name":
            return self._named(str(token.value), token.column)
        if token.kind in ("TRUE", "FALSE"):
            return _literal(token.kind == "TRUE", token.column)
        if token.kind == "number" and token.value == _SMALLEST_SIZE and type(token.value) is int:
            raise SelectorError(token.column, f"{token.shown!r} is too large: exact numbers have 64 bits")
        return _literal(token.value, token.column)

    def _nested(self) -> TypedNode:
        opening = self._need("(")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SelectorError(opening.column, f"nested more than {MAX_DEPTH} deep", over=True)
        part = self._either()
        self._need(")", "')'")
        self.depth -= 1
        return part

    def _count(self, token: Token) -> None:
        self.operands += 1
        if self.operands > MAX_OPERANDS:
            raise SelectorError(token.column, f"more than {MAX_OPERANDS} values", over=True)

    def _named(self, name: str, column: int) -> TypedNode:
        field = FIELDS.get(name)
        if field is not None:
            return TypedNode(
                condition.MessageField(field.slot(self.wanted), field.read), ANYTHING, column, form=field.form
            )
        if name == SIZE:
            return TypedNode(condition.MessageSize(), NUMBER, column)
        if name.startswith(AMQP_PREFIX):
            close = get_close_matches(name, FIELDS, n=1, cutoff=0.8)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise SelectorError(column, f"unknown field '{_short(name)}'{hint}")
        return TypedNode(condition.Property(self.wanted.name(name.encode())), ANYTHING, column)


def _literal(value: Value, column: int) -> TypedNode:
    kind = TEXT if isinstance(value, str) else CONDITION if isinstance(value, bool) else NUMBER
    return TypedNode(condition.Constant(value), kind, column, value)


def _in_form(part: TypedNode, other: TypedNode) -> ConditionNode:
    """The part's node; a literal string in the form of what it is compared with."""
    if isinstance(part.literal, str):
        return condition.Constant(other.form(part.literal))
    return part.node
