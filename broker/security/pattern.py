"""Patterns of rules: those of ``broker.config.patterns``, with the name of the user who asks in some words.

`${user}` stands for that name. It is text: a wildcard in it is a character like any other, and its dots part
words as they would in an address.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.patterns import WILD, Wild, Words, check_word

USER = "${user}"


@dataclass(frozen=True, slots=True)
class Template:
    """A rule's pattern as it was written; ``words`` are those of it that hold for one user."""

    text: str

    def words(self, user: str) -> Words:
        """Split it into the words that hold for a user; wildcards are those of the rule alone."""
        found: list[str | Wild] = []
        for word in self.text.split("."):
            if word in WILD:
                found.append(WILD[word])
            else:
                found += word.replace(USER, user).split(".")
        return tuple(found)


EVERYTHING = Template("#")


def parse_template(text: str) -> Template:
    """Parse the pattern of a rule. ValueError with the reason if it is none."""
    words = text.split(".")
    for number, word in enumerate(words, 1):
        check_word(word, last=number == len(words))
        if "${" in word.replace(USER, ""):
            raise ValueError(f"{word!r}: only {USER} stands for something")
    return Template(text)
