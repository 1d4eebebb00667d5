"""The fuzzers' committed inputs: of each target one file, `corpus/TARGET.txt`, of each input one line.

A line is the input's name, a space and its bytes, in which all but printable ASCII is escaped as Python does.
`python -m tests.fuzz.corpus TARGET FILE...` adds files, as the fuzzers leave them, under their own names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def path_of(target: str) -> Path:
    """Return the file of a target's inputs."""
    return CORPUS / f"{target}.txt"


def read(target: str) -> dict[str, bytes]:
    """Return a target's inputs by name, in order of their names."""
    # Split at line feeds only: other ends of lines are escaped.
    lines = path_of(target).read_text("ascii").split("\n")[:-1]
    return dict(sorted(_parsed(line) for line in lines))


def write(target: str, inputs: Mapping[str, bytes]) -> None:
    """Write a target's inputs anew; ValueError for a name that holds a space."""
    CORPUS.mkdir(exist_ok=True)
    text = "".join(_line(name, inputs[name]) for name in sorted(inputs))
    path_of(target).write_text(text, "ascii", newline="\n")


def unpack(target: str, folder: Path) -> None:
    """Write each input into a file of its own, for tools that read folders."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in read(target).items():
        (folder / name).write_bytes(data)


def _parsed(line: str) -> tuple[str, bytes]:
    name, _, escaped = line.partition(" ")
    return name, escaped.encode("ascii").decode("unicode_escape").encode("latin-1")


def _line(name: str, data: bytes) -> str:
    if " " in name:
        raise ValueError(f"an input's name holds no space: {name!r}")
    return f"{name} {data.decode('latin-1').encode('unicode_escape').decode('ascii')}\n"


if __name__ == "__main__":
    wanted, *files = sys.argv[1:]
    write(wanted, read(wanted) | {Path(each).name: Path(each).read_bytes() for each in files})
