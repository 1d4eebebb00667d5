"""Which names a filter means, and in which order values stand: the same for every face."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Any, TypeVar

Item = TypeVar("Item")


def matcher(text: str) -> Callable[[str], bool]:
    """Part of a name, or a pattern with `*` for the whole of it; case doesn't matter."""
    if "*" in text:
        # Only `*` stands for something.
        pattern = "*".join(part.replace("[", "[[]").replace("?", "[?]") for part in text.split("*"))
        whole = re.compile(translate(pattern), re.IGNORECASE)
        return lambda name: whole.match(name) is not None
    part = text.casefold()
    return lambda name: part in name.casefold()


def ordered(found: list[Item], key: Callable[[Item], object], downwards: bool) -> list[Item]:
    """Sorted; what has no value comes last either way."""
    there = [item for item in found if key(item) is not None]
    rest = [item for item in found if key(item) is None]
    return sorted(there, key=lambda item: _comparable(key(item)), reverse=downwards) + rest


def _comparable(value: object) -> tuple[int, Any]:
    return (0, value) if isinstance(value, (int, float)) else (1, str(value))
