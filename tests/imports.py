"""Every import of our own packages, those of compiled files included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "pyspark_sluice")
IMPORT_LINE = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?c?import\s+([\w., ()*]+)", re.MULTILINE)


@dataclass(frozen=True)
class Import:
    """One module of ours that imports another, or something outside; ``broker.`` is left away."""

    importer: str
    imported: str
    place: str


@cache
def modules() -> frozenset[str]:
    """The dotted names of all our modules and packages."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".pyx", ".pxd"):
                dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                found.add(_short(dotted.removesuffix(".__init__")))
    return frozenset(found)


@cache
def imports() -> tuple[Import, ...]:
    """Every import there is, in no order that means anything."""
    return (*python_imports(), *compiled_imports())


def python_imports() -> Iterator[Import]:
    """The ``import`` lines of .py files, those for type checkers included."""
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    for importer in sorted(graph.modules):
        if importer.partition(".")[0] not in PACKAGES:
            continue
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            details = graph.get_import_details(importer=importer, imported=imported)
            place = f"{importer}:{details[0]['line_number']}" if details else importer
            yield Import(_short(importer), _short(imported), place)


def compiled_imports() -> Iterator[Import]:
    """The ``import`` and ``cimport`` lines of .pyx and .pxd files, which no Python parser reads."""
    for path in sorted((ROOT / "broker").rglob("*.p[yx][xd]")):
        importer = _short(".".join(path.relative_to(ROOT).with_suffix("").parts))
        text = path.read_text()
        for match in IMPORT_LINE.finditer(text):
            line = text[: match.start()].count("\n") + 1
            for name in (each.split()[0] for each in re.split(r"[,()]", match[2]) if each.strip()):
                full = _short(f"{match[1]}.{name}" if match[1] else name)
                yield Import(importer, module_of(full), f"{path.relative_to(ROOT)}:{line}")


def module_of(name: str) -> str:
    """The module that a dotted name stands in; the name itself where that isn't ours."""
    found = name
    while found not in modules():
        if "." not in found:
            return name
        found = found.rpartition(".")[0]
    return found


def _short(dotted: str) -> str:
    return dotted.removeprefix("broker.")
