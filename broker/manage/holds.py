"""The operator's hand on producers: which names are held, for nodes that exist and for those to come.

Holds are rules in the order they were given, and the last one that matches a name decides: after
`stop orders.>` and `start orders.eu` every order but those of `orders.eu` is held.
"""

from __future__ import annotations

from collections.abc import Iterable

EVERYTHING = ">"


def covers(pattern: str, other: str) -> bool:
    """True if every name ``other`` matches is matched by ``pattern`` too; ``other`` may be a plain name.

    `*` stands for one word, `>` or `#` for the rest (one word or more).
    """
    words, others = pattern.split("."), other.split(".")
    for place, word in enumerate(words):
        if word in (">", "#"):
            return len(others) > place
        if place >= len(others) or others[place] in (">", "#") or word not in ("*", others[place]):
            return False
    return len(words) == len(others)


class Holds:
    """Rules by pattern; ``patterns`` are those that stop, fit to be kept over a restart."""

    def __init__(self, rules: Iterable[tuple[str, bool]] = ()) -> None:
        self._rules: dict[str, bool] = {}
        for pattern, held in rules:
            self.put(pattern, held)

    def put(self, pattern: str, held: bool) -> None:
        """Stop or start what matches; rules that this one covers are forgotten."""
        for other in [rule for rule in self._rules if covers(pattern, rule)]:
            del self._rules[other]
        if held or any(self._rules.values()):
            self._rules[pattern] = held
        if not any(self._rules.values()):
            self._rules.clear()

    def holding(self, name: str) -> str:
        """The pattern that holds ``name``; empty if none does."""
        for pattern, held in reversed(self._rules.items()):
            if covers(pattern, name):
                return pattern if held else ""
        return ""

    @property
    def rules(self) -> list[tuple[str, bool]]:
        """What to hand to the constructor to have the same again."""
        return list(self._rules.items())

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that stop."""
        return tuple(pattern for pattern, held in self._rules.items() if held)
