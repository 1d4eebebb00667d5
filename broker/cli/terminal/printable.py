"""Text made safe for a terminal: what a terminal might obey is shown as an escape.

Nothing a peer chose (names of nodes and links, container ids, reasons, bodies) is printed for a reader
any other way; JSON escapes by itself.
"""

from __future__ import annotations

import unicodedata

# Controls, formats (which turn the direction of text, or can't be seen), surrogates and separators of lines.
UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
LONGEST = 65536  # characters of one body on a line

_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), *_DIRECTIONS, *range(0xD800, 0xE000))
}


def printable(text: str) -> str:
    """A name, or another short text, with everything unsafe or unseen in it shown."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in UNSAFE
        else character
        for character in text
    )


def printable_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


def safe(text: str) -> str:
    """A body on one line, cut where it is very long; joiners, which emoji and scripts are made with, stay."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
    return cut if cut.isprintable() else cut.translate(_ESCAPES)
