"""Which addresses a rule means: words between dots, of which some are wildcards and some a user's name.

`*` stands for one word; at the end, `>` stands for one word or more and `#` for any number, none
included, as in policies. `${user}` stands for the name of whoever asks. That name is text: a wildcard in
it is a character like any other, and its dots part words as they would in an address.

An address may be a pattern too, as of a subscription to many topics. Then a rule covers it if it means every
address that fits, and touches it if it means one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

USER = "${user}"


class Wild(Enum):
    """A word that stands for others."""

    ONE = "*"
    SOME = ">"
    ANY = "#"


Words = tuple[str | Wild, ...]
_WILD = {each.value: each for each in Wild}
_REST = (Wild.SOME, Wild.ANY)
_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Template:
    """A rule's pattern as it was written; ``words`` are those of it that hold for one user."""

    text: str

    def words(self, user: str) -> Words:
        """Wildcards are those of the rule alone, never the user's."""
        found: list[str | Wild] = []
        for word in self.text.split("."):
            if word in _WILD:
                found.append(_WILD[word])
            else:
                found += word.replace(USER, user).split(".")
        return tuple(found)


EVERYTHING = Template("#")


def parse_template(text: str) -> Template:
    """The pattern of a rule; ValueError with the reason if it is none."""
    words = text.split(".")
    for number, word in enumerate(words, 1):
        if not word:
            raise ValueError("a pattern is words between dots, and none of them may be empty")
        if word in (">", "#") and number < len(words):
            raise ValueError(f"{word!r} stands for the rest and must be the last word")
        for mark in _WILD:
            if mark in word and word != mark:
                raise ValueError(f"{mark!r} stands for whole words only, not for a part of {word!r}")
        if "${" in word.replace(USER, ""):
            raise ValueError(f"{word!r}: only {USER} stands for something")
    return Template(text)


def words_of(address: str) -> Words:
    """The words of an address, or of a pattern; '' has none, and `#` alone means it."""
    if not address:
        return ()
    words = address.split(".")
    found: list[str | Wild] = [_WILD.get(word, word) for word in words]
    # A wildcard for the rest that isn't the last word makes no pattern; whoever parses it says so.
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
    """The fewest and the most words of an address that fits."""
    last = words[-1] if words else ""
    if last is Wild.ANY:
        return len(words) - 1, _UNBOUNDED
    return len(words), _UNBOUNDED if last is Wild.SOME else len(words)
