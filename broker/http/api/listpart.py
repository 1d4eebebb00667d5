"""The part of a list that another cell asks for, to make one list of those of all cells."""

from __future__ import annotations

from dataclasses import dataclass

# Where a request's state has it.
PART = "part"


@dataclass(frozen=True, slots=True)
class ListPart:
    """The keys of all items in their order, or whole rows of those whose identities are ``names``."""

    names: tuple[str, ...] | None = None
