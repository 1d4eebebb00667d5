"""SQL's LIKE, without backtracking over more than one place at a time.

1. A pattern is cut at each ``%`` into segments. The first must stand where the text begins, the last
   where it ends, and each between them is taken at the first place where it fits: if any choice of
   places works, the leftmost does.
2. A segment is a fixed number of characters, of which ``_`` may be any and the others are runs of literal
   text. It is looked for by its longest run.

So a match costs at most the text's length times the pattern's, and without ``_`` a few searches.
"""

from __future__ import annotations

ANY_TEXT = "%"
ANY_CHARACTER = "_"


class Segment:
    """So many characters: runs of literal text at their offsets, and any character in between."""

    __slots__ = ("anchor", "anchor_at", "length", "runs")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self.runs = list(_runs(characters))
        # The longest run is the rarest to be found by chance.
        self.anchor_at, self.anchor = max(self.runs, key=lambda run: len(run[1]), default=(0, ""))

    def stands_at(self, text: str, at: int) -> bool:
        """Whether it fits at this place of a text that is long enough."""
        for offset, run in self.runs:  # noqa: SIM110 - a generator costs more than the comparison
            if not text.startswith(run, at + offset):
                return False
        return True

    def find(self, text: str, at: int, end: int) -> int:
        """The first place from ``at`` where it fits before ``end``; -1 if there is none."""
        last = end - self.length
        while at <= last:
            found = text.find(self.anchor, at + self.anchor_at, last + self.anchor_at + len(self.anchor))
            if found < 0:
                return -1
            at = found - self.anchor_at
            if self.stands_at(text, at):
                return at
            at += 1
        return -1


class LikePattern:
    """A pattern made ready. ValueError if its last character is an escape, which then escapes nothing."""

    __slots__ = ("head", "middle", "tail")

    def __init__(self, pattern: str, escape: str = "") -> None:
        segments = _segments(pattern, escape)
        self.head = Segment(segments[0])
        self.tail = Segment(segments[-1]) if len(segments) > 1 else None
        self.middle = [Segment(segment) for segment in segments[1:-1] if segment]

    def matches(self, text: str) -> bool:
        if self.tail is None:
            return len(text) == self.head.length and self.head.stands_at(text, 0)
        at = self.head.length
        end = len(text) - self.tail.length
        if at > end or not self.head.stands_at(text, 0) or not self.tail.stands_at(text, end):
            return False
        for segment in self.middle:
            at = segment.find(text, at, end)
            if at < 0:
                return False
            at += segment.length
        return True


def _segments(pattern: str, escape: str) -> list[list[str | None]]:
    """The characters between the ``%``; None stands for any character."""
    segments: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("the pattern ends with its escape character")
            segments[-1].append(escaped)
        elif character == ANY_TEXT:
            segments.append([])
        else:
            segments[-1].append(None if character == ANY_CHARACTER else character)
    return segments


def _runs(characters: list[str | None]) -> list[tuple[int, str]]:
    runs: list[tuple[int, str]] = []
    for offset, character in enumerate(characters):
        if character is None:
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + character)
        else:
            runs.append((offset, character))
    return runs
