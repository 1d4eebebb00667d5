"""SQL's LIKE, in one pass over the text.

1. A pattern is cut at each ``%`` into segments. The first must stand where the text begins, the last
   where it ends, and each between them is taken at the first place where it fits: if any choice of
   places works, the leftmost does.
2. A segment is a fixed number of characters, of which ``_`` may be any and the others are runs of literal
   text. One with a single run is found by searching that.
3. One with more is found by Shift-And (Baeza-Yates and Gonnet, 1992): a number has a bit for each of the
   segment's characters, set where the segment up to there fits the text up to here. Trying every place
   instead would cost the text's length times the pattern's, and the pattern is a peer's.
"""

from __future__ import annotations

ANY_TEXT = "%"
ANY_CHARACTER = "_"
# The bits of a segment's number, and so the memory of its masks: this squared, at most, over 8.
MAX_BITS = 1024


class Segment:
    """So many characters: runs of literal text at their offsets, and any character in between."""

    __slots__ = ("anchor", "anchor_at", "any", "length", "masks", "runs")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self.runs = list(_runs(characters))
        # The longest run is the rarest to be found by chance.
        self.anchor_at, self.anchor = max(self.runs, key=lambda run: len(run[1]), default=(0, ""))
        self.any = 0
        self.masks: dict[str, int] = {}
        if len(self.runs) > 1:
            self._prepare(characters)

    def _prepare(self, characters: list[str | None]) -> None:
        if self.length > MAX_BITS:
            raise ValueError(f"more than {MAX_BITS} characters in one piece with _ among them")
        self.any = sum(1 << bit for bit, character in enumerate(characters) if character is None)
        for bit, character in enumerate(characters):
            if character is not None:
                self.masks[character] = self.masks.get(character, self.any) | 1 << bit

    def stands_at(self, text: str, at: int) -> bool:
        """Whether it fits at this place of a text that is long enough."""
        for offset, run in self.runs:  # noqa: SIM110 - a generator costs more than the comparison
            if not text.startswith(run, at + offset):
                return False
        return True

    def find(self, text: str, at: int, end: int) -> int:
        """The first place from ``at`` where it fits before ``end``; -1 if there is none."""
        last = end - self.length
        if at > last:
            return -1
        found = text.find(self.anchor, at + self.anchor_at, last + self.anchor_at + len(self.anchor))
        if found < 0 or len(self.runs) < 2 or self.stands_at(text, found - self.anchor_at):
            return found if found < 0 else found - self.anchor_at
        return self._scan(text, found - self.anchor_at + 1, end)

    def _scan(self, text: str, at: int, end: int) -> int:
        masks = self.masks
        anything = self.any
        whole = 1 << (self.length - 1)
        fitting = 0
        for place in range(at, end):
            fitting = (fitting << 1 | 1) & masks.get(text[place], anything)
            if fitting & whole:
                return place - self.length + 1
        return -1


class LikePattern:
    """A pattern made ready; ValueError with the reason if it ends with an escape or is too long."""

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
