"""Which addresses a pattern means, and which of two patterns is the more specific.

An address is words between dots. `*` stands for one word; at the end, `>` stands for one word or more
(as in EMS) and `#` for any number, none included (as in AMQP 0-10). Everything else is literal.

Of the patterns that match one address, the most specific is the one that is more literal at the first
word in which they differ: a literal word, or the end, before `*`, before `>`, before `#`.

A pattern of subscriptions may say whose they are behind the last slash: `news.>/client.*` are those of
container `client` to any of these topics. One that says so is more specific than one that doesn't.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ONE = "*"
REST = (">", "#")

_RANK = {ONE: 1, ">": 2, "#": 3}
EVERYBODY = 4


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
        return not any(word in _RANK for word in self.words)

    @property
    def literal(self) -> bool:
        """Whether it means one address only."""
        return not any(self.rank)


def parse_pattern(text: str) -> Pattern:
    """The pattern; ValueError with the reason if it is none."""
    words = tuple(text.split("."))
    for position, word in enumerate(words):
        _check_word(word, last=position == len(words) - 1)
    return Pattern(text, words, (*(_RANK.get(word, 0) for word in words), 0))


def parse_subscription_pattern(text: str) -> Pattern:
    """The pattern of a policy for subscriptions: `ADDRESS`, or `ADDRESS/OWNER`; ValueError if it is none.

    The owner is ``container.link``, or the name of a shared subscription.
    """
    address, slash, owner = text.rpartition("/")
    if not slash:
        pattern = parse_pattern(text)
        return Pattern(text, pattern.words, (*pattern.rank, EVERYBODY))
    whose, pattern = parse_pattern(owner), parse_pattern(address)
    return Pattern(text, pattern.words, (*pattern.rank, *whose.rank), whose)


def _check_word(word: str, last: bool) -> None:
    if not word:
        raise ValueError("a pattern is words between dots, and none of them may be empty")
    if word in REST and not last:
        raise ValueError(f"{word!r} stands for the rest and must be the last word")
    for mark in (ONE, *REST):
        if mark in word and word != mark:
            raise ValueError(f"{mark!r} stands for whole words only, not for a part of {word!r}")


def _same(pattern: tuple[str, ...], words: list[str]) -> bool:
    return all(mine in (ONE, theirs) for mine, theirs in zip(pattern, words, strict=False))
