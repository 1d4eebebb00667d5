"""Patterns of addresses: which addresses one means, which of two is the more specific, or within the other.

An address is words between dots. `*` stands for one word; at the end, `>` stands for one word or more
(as in EMS) and `#` for any number, none included (as in AMQP 0-10). Everything else is literal.

Of the patterns that match one address, the most specific is the one that is more literal at the first
word in which they differ: a literal word, or the end, before `*`, before `>`, before `#`.

A pattern of subscriptions may say whose they are behind the last slash: `news.>/client.*` are those of
container `client` to any of these topics. One that says so is more specific than one that doesn't.

An address may be a pattern too, as of a subscription to many topics. A rule covers it if it means every
address that fits, and touches it if it means one of them. For that, words are ``Words``: a wildcard is no
text, so that a name with such a character is a name like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

ONE = "*"
REST = (">", "#")

_RANK = {ONE: 1, ">": 2, "#": 3}
EVERYBODY = 4


class Wild(Enum):
    """A word that stands for others."""

    ONE = "*"
    SOME = ">"
    ANY = "#"


Words = tuple[str | Wild, ...]
WILD = {each.value: each for each in Wild}
_REST = (Wild.SOME, Wild.ANY)
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern; sort by ``rank`` for the most specific first.

    ``owner`` is the part about whose subscriptions it means, None where it means everybody's.
    """

    text: str
    words: tuple[str, ...] = field(repr=False)
    rank: tuple[int, ...] = field(repr=False)
    owner: Pattern | None = field(default=None, repr=False)

    def matches(self, address: str) -> bool:
        words = address.split(".")
        last = self.words[-1]
        if last not in REST:
            return len(words) == len(self.words) and _same(self.words, words)
        head = self.words[:-1]
        least = len(head) + (last == ">")
        return len(words) >= least and _same(head, words)

    def matches_subscription(self, address: str, owner: str) -> bool:
        """Whether it means the subscription to an address of ``container.link``."""
        return self.matches(address) and (self.owner is None or self.owner.matches(owner))

    @property
    def of_one_address(self) -> bool:
        """Whether it has no mark in its address."""
        return not any(word in WILD for word in self.words)

    @property
    def literal(self) -> bool:
        """Whether it means one address only."""
        return not any(self.rank)


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern. ValueError with the reason if it is none."""
    words = tuple(text.split("."))
    for number, word in enumerate(words, 1):
        check_word(word, last=number == len(words))
    return Pattern(text, words, (*(_RANK.get(word, 0) for word in words), 0))


def parse_subscription_pattern(text: str) -> Pattern:
    """Parse a pattern of subscriptions, `ADDRESS` or `ADDRESS/OWNER`. ValueError if it is none.

    The owner is ``container.link``, or the name of a shared subscription.
    """
    address, slash, owner = text.rpartition("/")
    if not slash:
        pattern = parse_pattern(text)
        return Pattern(text, pattern.words, (*pattern.rank, EVERYBODY))
    whose, pattern = parse_pattern(owner), parse_pattern(address)
    return Pattern(text, pattern.words, (*pattern.rank, *whose.rank), whose)


def check_word(word: str, last: bool) -> None:
    """Check one word of a pattern, ``last`` or not. ValueError with the reason if it can't stand there."""
    if not word:
        raise ValueError("a pattern is words between dots, and none of them may be empty")
    if word in REST and not last:
        raise ValueError(f"{word!r} stands for the rest and must be the last word")
    for mark in WILD:
        if mark in word and word != mark:
            raise ValueError(f"{mark!r} stands for whole words only, not for a part of {word!r}")


def is_pattern(address: str) -> bool:
    """Whether an address has words that stand for others: it can be subscribed, and nothing sent to it."""
    return any(word in WILD for word in address.split("."))


def words_of(address: str) -> Words:
    """Split an address, or a pattern, into words; '' has none, and `#` alone means it."""
    if not address:
        return ()
    words = address.split(".")
    found: list[str | Wild] = [WILD.get(word, word) for word in words]
    # A wildcard for the rest that isn't the last word makes no pattern; parsing it says so.
    return (*(Wild.ONE if each in _REST else each for each in found[:-1]), found[-1])


def covers(rule: Words, address: Words) -> bool:
    """Whether the rule means every address that these words stand for."""
    head, fixed = _head(rule), _head(address)
    if len(fixed) < len(head) or not all(map(_covers_word, head, fixed)):
        return False
    if len(head) == len(rule):
        return len(fixed) == len(address) == len(head)
    return rule[-1] is Wild.ANY or len(fixed) > len(head) or address[-1:] == (Wild.SOME,)


def touches(rule: Words, address: Words) -> bool:
    """Whether there is an address that both stand for."""
    if not all(map(_touches_word, _head(rule), _head(address))):
        return False
    (least, most), (fewest, longest) = _lengths(rule), _lengths(address)
    return max(least, fewest) <= min(most, longest)


def _head(words: Words) -> Words:
    return words[:-1] if words and words[-1] in _REST else words


def _covers_word(rule: str | Wild, word: str | Wild) -> bool:
    return rule is Wild.ONE or rule == word


def _touches_word(rule: str | Wild, word: str | Wild) -> bool:
    return rule is Wild.ONE or word is Wild.ONE or rule == word


def _lengths(words: Words) -> tuple[int, int]:
    """Count the fewest and the most words of an address that fits."""
    last = words[-1] if words else ""
    if last is Wild.ANY:
        return len(words) - 1, _UNBOUNDED
    return len(words), _UNBOUNDED if last is Wild.SOME else len(words)


def _same(pattern: tuple[str, ...], words: list[str]) -> bool:
    return all(mine in (ONE, theirs) for mine, theirs in zip(pattern, words, strict=False))
