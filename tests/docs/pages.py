"""The blocks of a page: what a reader is told to type, and what they are told to expect.

A fence names its language. ``sh`` is run as it stands, in order, in one shell; more words say how:

- ``sh background``: in a terminal of its own; it must end well by the end of the page.
- ``sh endless``: likewise, and it is interrupted at the end of the page.
- ``sh fails``: the last command exits with a status other than 0.

``text`` right behind a block is what it prints; ``text background`` and ``text endless`` what the last such
block has printed by the end; any other is a picture. ``console`` is not run; a comment
``<!-- not run: why -->`` before it says why. A comment ``<!-- until: COMMAND -->`` waits, between two
blocks, until the command succeeds: what a reader would watch for. Every block of ``yaml`` is checked as a
policy file or as settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BESIDE = {"background", "endless"}
LANGUAGES = {"sh", "text", "console", "yaml", "json", "python", "ini", "promql", "javascript", "java"}

_FENCE = re.compile(r"^```(.*)$")
_ANYTHING = re.compile(r" ?(?:\.\.\.|…|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z) ?")
_NOTE = re.compile(r"^<!-- (until|not run): (.*?) -->$")


@dataclass
class Block:
    """A fenced block, or (language ``until``) a condition to wait for."""

    line: int
    words: list[str]
    text: str
    not_run: str = ""
    adjacent: bool = False
    expected: list[Block] = field(default_factory=list)

    @property
    def language(self) -> str:
        """The fence's first word."""
        return self.words[0] if self.words else ""


def applications(page: Path) -> dict[str, str]:
    """The programs that a page shows, by the names that its comments `application: NAME` give them."""
    found = re.findall(r"^<!-- application: (\S+) -->\n```\w+\n(.*?)^```$", page.read_text(), re.M | re.S)
    return dict(found)


def pages() -> list[Path]:
    """Every page for readers; decisions have no commands."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The page's blocks in order."""
    return list(_blocks(page.read_text().splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    opened: Block | None = None
    body: list[str] = []
    why, adjacent = "", False
    for number, line in enumerate(lines, 1):
        fence, note = _FENCE.match(line), _NOTE.match(line)
        if opened is None and note and note[1] == "until":
            yield Block(number, ["until"], note[2])
        elif opened is None and note:
            why = note[2]
        elif fence and opened is None:
            opened, body = Block(number, fence[1].split(), "", why, adjacent), []
            why = ""
        elif fence and opened is not None and not fence[1]:
            opened.text = "\n".join(body) + "\n"
            yield opened
            opened, adjacent = None, True
        elif opened is not None:
            body.append(line)
        elif line.strip():
            adjacent = False


def with_expected(found: list[Block]) -> list[Block]:
    """``text`` blocks moved to the block that prints them."""
    kept: list[Block] = []
    for block in found:
        beside = set(block.words) & BESIDE
        if block.language == "text" and beside:
            [each for each in kept if beside <= set(each.words)][-1].expected.append(block)
        elif block.language == "text" and block.adjacent and kept[-1].language in ("sh", "console"):
            kept[-1].expected.append(block)
        else:
            kept.append(block)
    return kept


def missing(expected: str, said: str) -> list[str]:
    """The expected lines that were not said, in order; ``...`` and times stand for any text."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    left = []
    for wanted in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(".*".join(re.escape(part) for part in _ANYTHING.split(wanted)))
        at = next((n for n, line in enumerate(lines) if pattern.fullmatch(line)), None)
        if at is None:
            left.append(wanted)
        else:
            lines = lines[at + 1 :]
    return left
