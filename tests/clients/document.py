"""Writes docs/clients.md from what the tests found: a matrix, and how the types fared between each two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.clients.programs import BY_NAME, PROGRAMS, Cell, features

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "clients.md"


# Where a feature's name promises more than its tests show.
LABELS = {"priority": "priority (the header arrives; the order stays that of arrival)"}


def matrix(found: Mapping[str, Mapping[str, Cell]]) -> str:
    """A row a feature, a column a client; a number refers to why a cell is not applicable."""
    notes: dict[str, int] = {}
    lines = [
        "| | " + " | ".join(f"{each.name}<br>{each.library_version}" for each in PROGRAMS) + " |",
        "|---|" + ":-:|" * len(PROGRAMS),
    ]
    for feature in features():
        cells = [_shown(found[each.name][feature], each.name, notes) for each in PROGRAMS]
        lines.append(f"| {LABELS.get(feature, feature)} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    return "\n".join(lines)


def _shown(cell: Cell, client: str, notes: dict[str, int]) -> str:
    if cell.result == "pass":
        return "✓"
    if cell.result == "fail":
        return "✗"
    note = f"{client}: {cell.why}"
    return f"– <sup>{notes.setdefault(note, len(notes) + 1)}</sup>"


def pairs(counts: Mapping[tuple[str, str], tuple[int, int]]) -> str:
    """A row a sender, a column a receiver: cases that arrived equal, of those that were sent."""
    names = list(dict.fromkeys(sender for sender, _ in counts))
    lines = ["| sent by \\ received by | " + " | ".join(names) + " |", "|---|" + ":-:|" * len(names)]
    for sender in names:
        cells = [f"{equal} of {sent}" for equal, sent in (counts[sender, each] for each in names)]
        lines.append(f"| {sender} ({BY_NAME[sender].language}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def part(name: str, document: Path = DOCUMENT) -> str:
    """What a page says between its marks of that name."""
    text = document.read_text()
    begin, end = _marks(name)
    return text[text.index(begin) + len(begin) : text.index(end)].strip("\n")


def write(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Say it there."""
    page = document.read_text()
    begin, end = _marks(name)
    before, after = page[: page.index(begin)], page[page.index(end) :]
    document.write_text(f"{before}{begin}\n{text}\n{after}")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- end of {name} -->"
