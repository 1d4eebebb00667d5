"""The operator's hand on producers: which names are held, for nodes that exist and for those to come.

Holds are rules in the order they were given, and the last one that matches a name decides: after
`stop orders.>` and `start orders.eu` every order but those of `orders.eu` is held.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.config.patterns import REST, Pattern, is_pattern, parse_pattern
from broker.errors import OperatorError

EVERYTHING = ">"


class ProducerHolds:
    """Rules by pattern; ``patterns`` are those that stop."""

    def __init__(self, rules: Iterable[tuple[str, bool]] = ()) -> None:
        self._rules: dict[str, bool] = {}
        self._parsed: dict[str, Pattern | None] = {}
        for pattern, held in rules:
            self.put(pattern, held)

    def put(self, target: str, held: bool) -> None:
        """Stop or start what matches a name or a pattern; rules it covers are forgotten."""
        pattern = parsed(target)
        for rule in [rule for rule in self._rules if covers(target, pattern, rule)]:
            del self._rules[rule], self._parsed[rule]
        if held or self.patterns:
            self._rules[target] = held
            self._parsed[target] = pattern
        if not self.patterns:
            self._rules.clear()
            self._parsed.clear()

    def holding(self, name: str) -> str:
        """The pattern that holds ``name``; empty if none does. The broker's own names are never held."""
        if name.startswith("$"):
            return ""
        for rule, held in reversed(self._rules.items()):
            if matches(rule, self._parsed[rule], name):
                return rule if held else ""
        return ""

    @property
    def rules(self) -> list[tuple[str, bool]]:
        """Return the rules that make the same holds, given to the constructor."""
        return list(self._rules.items())

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns that stop."""
        return tuple(rule for rule, held in self._rules.items() if held)


def parsed(target: str) -> Pattern | None:
    """The pattern; None for a plain name, which may be anything a node may be called."""
    if not is_pattern(target):
        return None
    try:
        return parse_pattern(target)
    except ValueError as fault:
        raise OperatorError(f"'{target}': {fault}") from None


def matches(target: str, pattern: Pattern | None, name: str) -> bool:
    """True if the name is meant."""
    return target == name if pattern is None else pattern.matches(name)


def covers(target: str, pattern: Pattern | None, rule: str) -> bool:
    """True if every name the other rule means is meant by this one too."""
    if target == rule or pattern is None:
        return target == rule
    last, other = pattern.words[-1], rule.rpartition(".")[2]
    # `#` means the bare stem as well, which only another `#` or everything does.
    open_end = last in REST and (other == ">" or last == "#" or target == EVERYTHING)
    return pattern.matches(rule) and (other not in REST or open_end)
