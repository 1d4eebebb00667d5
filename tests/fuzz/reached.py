"""Which lines ran, of the compiled part and of the rest, while some inputs were tried.

Of the compiled part the places are known that gcc calls for (coverage.c); what the compiler kept of the line
numbers makes lines of them. Error paths that only a lack of memory takes count as lines of their statement.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, set[int]]
_CALL = re.compile(rb"^\s*([0-9a-f]+):.*call.*<__sanitizer_cov_trace_pc(?:@plt)?>", re.MULTILINE)


class Watch:
    """Notes the lines of these files of Python, below a directory, that run from ``start`` to ``stop``."""

    def __init__(self, folder: Path, files: tuple[str, ...]) -> None:
        self.names = {str(folder / "broker" / name): name for name in files}
        self.lines: Lines = {}

    def start(self) -> None:
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = self.names.get(frame.f_code.co_filename)
        if name is None:
            return None
        seen = self.lines.setdefault(name, set())

        def each(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                seen.add(frame.f_lineno)
            return each

        return each


def written(source: Path) -> set[int]:
    """The lines of a file of Python that can run within a function; what runs on import is no input's
    doing."""
    found: set[int] = set()
    for code in _functions(compile(source.read_text(), str(source), "exec")):
        lines = [line for _, _, line in code.co_lines() if line is not None]
        found.update(line for line in lines if line != code.co_firstlineno)
    return found


def _functions(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & 0x02:  # of a function, not of a class
                yield each
            yield from _functions(each)


def compiled(folder: Path, files: tuple[str, ...], shim: ctypes.CDLL) -> tuple[Lines, Lines]:
    """Of each file that is compiled: the lines that ran in this process, and all."""
    ran: Lines = {}
    every: Lines = {}
    hit = _places(shim)
    bases = _loaded()
    for name in files:
        module = next((folder / "broker" / name).parent.glob(f"{Path(name).stem}.cpython*.so"), None)
        if module is None:
            continue
        calls = [int(match[1], 16) for match in _CALL.finditer(_run("objdump", "-d", str(module)))]
        base = bases.get(str(module), 0)
        # What is noted is where the call returns to, five bytes behind it.
        taken = [at for at in calls if base and at + 5 + base in hit]
        every[name] = _lines(module, calls, name)
        ran[name] = _lines(module, taken, name)
    return ran, every


def _places(shim: ctypes.CDLL) -> set[int]:
    class Place(ctypes.Structure):
        _fields_ = (("pc", ctypes.c_size_t), ("flags", ctypes.c_size_t))

    shim.sluice_places.restype = ctypes.POINTER(Place)
    shim.sluice_place_count.restype = ctypes.c_size_t
    places, count = shim.sluice_places(), shim.sluice_place_count()
    return {places[at].pc for at in range(count) if places[at].pc}


def _loaded() -> dict[str, int]:
    """Where each library begins in memory."""
    bases: dict[str, int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[2] == "00000000":
            bases.setdefault(parts[5], int(parts[0].partition("-")[0], 16))
    return bases


def _lines(module: Path, places: list[int], name: str) -> set[int]:
    if not places:
        return set()
    asked = "\n".join(hex(place) for place in places).encode()
    told = _run("addr2line", "-e", str(module), given=asked).decode()
    found = (line.rpartition(":") for line in told.splitlines())
    return {
        int(number.split()[0]) for file, _, number in found if file.endswith(name) and number[:1].isdigit()
    }


def _run(*command: str, given: bytes = b"") -> bytes:
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout
