"""Moves every module to where ``tests/places.py`` has it, and rewrites whoever names it. To be run once.

Tried: ruff, mypy and the build pass behind it after what is listed here by hand.

- ``broker/{policy,routes,channels,logs}/__init__.py`` go; ``checksum.h`` goes to ``broker/store``.
- pyproject.toml: ``pyspark_sluice*`` as a package, its files for mypy, ``pyspark_sluice/jobs/**`` for ruff.
- ``vars(codes)`` in tests/unit/test_codes.py; ``broker.settings`` of a peer in bench/peers is no module.
- tests/unit/test_cli_imports.py takes ``broker.manage`` for the model; the schema of events is there too.
- tests/test_rooms.py judges by the rooms of before: ``test_layers.py`` takes its place.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

from tests.places import PLACES

ROOT = Path(__file__).parent.parent
ENDS = (".py", ".pyx", ".pxd", ".pyi")
TEXT = (*ENDS, ".md", ".toml", ".in", ".yml", ".yaml", ".sh", ".cfg", ".service", "")
SPARK = "pyspark_sluice"


def whole(module: str) -> str:
    """A module's dotted name."""
    return module if module.startswith(SPARK) else f"broker.{module}"


MOVES = {
    f"broker.{old}": whole(f"{package}.{name}" if package else name)
    for package, modules in PLACES.items()
    for old, name in modules.items()
}
# Packages that are named as such.
PACKAGES = {
    "broker.spark": SPARK,
    "broker.jobs": f"{SPARK}.jobs",
    "broker.events": "broker.manage.events",
    "broker.advise": "broker.manage.advise",
}
IMPORT = re.compile(r"^([ \t]*)from (broker(?:\.\w+)*) (c?import) (\((?:[^)]*)\)|[^\n(]+)$", re.MULTILINE)
DOTTED = re.compile(r"\bbroker(?:\.\w+)+")
PATH = re.compile(r"\bbroker((?:/\w+)+)(\.pyx|\.pyi|\.pxd|\.py)\b")
SHORT = re.compile(r"`((?:\w+/)+\w+)\.(py|pyx)`")


def moved(dotted: str) -> str:
    """A dotted name with the longest module in it put where it is now."""
    parts = dotted.split(".")
    for count in range(len(parts), 1, -1):
        head = ".".join(parts[:count])
        new = MOVES.get(head) or PACKAGES.get(head)
        if new is not None:
            return ".".join([new, *parts[count:]])
    return dotted


class File:
    """One file whose text is rewritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.renamed: dict[str, str] = {}

    def rewrite(self) -> str:
        """Its text with every name put right."""
        code = self.path.suffix in ENDS or self.path.suffix == ".md"
        pieces, at = [], 0
        for found in IMPORT.finditer(self.text) if code else ():
            pieces.append(self._plain(self.text[at : found.start()]))
            pieces.append(self._import(found))
            at = found.end()
        pieces.append(self._plain(self.text[at:]))
        text = "".join(pieces)
        for old, new in self.renamed.items():
            text = re.sub(rf"(?<![\w.\"'`/]){old}(?=\.\w)", new, text)
        return text

    def _plain(self, text: str) -> str:
        text = DOTTED.sub(lambda found: moved(found[0]), text)
        text = PATH.sub(_path, text)
        return SHORT.sub(_short, text) if self.path.suffix in (".md", ".py", ".pyx") else text

    def _import(self, found: re.Match[str]) -> str:
        indent, package, verb, names = found.groups()
        comment = ""
        if not names.startswith("(") and "#" in names:
            names, _, comment = names.partition("#")
            comment = "  #" + comment
        listed = [re.sub(r"#.*", "", each).strip() for each in re.split(r"[,\n]", names.strip("()\n "))]
        onto: defaultdict[str, list[str]] = defaultdict(list)
        for each in filter(None, listed):
            name, _, alias = each.partition(" as ")
            full = f"{package}.{name}"
            if full in MOVES:
                new_package, _, new_name = MOVES[full].rpartition(".")
                if not alias and new_name != name:
                    self.renamed[name] = new_name
                onto[new_package].append(f"{new_name} as {alias}" if alias else new_name)
            elif full in PACKAGES:
                new_package, _, new_name = PACKAGES[full].rpartition(".")
                if not new_package:
                    return f"{indent}import {new_name}"
                onto[new_package].append(new_name)
            else:
                onto[moved(package)].append(each)
        lines = [
            f"{indent}from {each} {verb} {_listed(items, indent)}{comment}" for each, items in onto.items()
        ]
        return "\n".join(lines)


def _listed(names: list[str], indent: str) -> str:
    line = ", ".join(names)
    if len(line) < 70:
        return line
    rows = "".join(f"{indent}    {each},\n" for each in names)
    return f"(\n{rows}{indent})"


def _path(found: re.Match[str]) -> str:
    old = "broker" + found[1].replace("/", ".")
    return MOVES[old].replace(".", "/") + found[2] if old in MOVES else found[0]


def _short(found: re.Match[str]) -> str:
    old = "broker." + found[1].replace("/", ".")
    if old not in MOVES:
        return found[0]
    return f"`{MOVES[old].removeprefix('broker.').replace('.', '/')}.{found[2]}`"


def files() -> list[Path]:
    """Every file of text that git knows."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = [ROOT / line for line in listed.splitlines()]
    return [path for path in paths if path.suffix in TEXT and path.is_file() and not path.is_symlink()]


def git(*arguments: str) -> None:
    """Run it."""
    subprocess.run(["git", *arguments], cwd=ROOT, check=True)


def main() -> None:
    """Do it."""
    for path in files():
        if path.name in ("relayout.py", "places.py", "CHANGELOG.md"):
            continue
        try:
            file = File(path)
        except UnicodeDecodeError:
            continue
        text = file.rewrite()
        if text != file.text:
            path.write_text(text)
    git("rm", "-q", "--cached", SPARK)
    (ROOT / SPARK).unlink()
    # Over a side name, for a package may bear a module's old name.
    aside: list[tuple[Path, Path]] = []
    for old, new in MOVES.items():
        for end in ENDS:
            source = ROOT / (old.replace(".", "/") + end)
            if source.exists():
                target = ROOT / (new.replace(".", "/") + end)
                side = source.with_name(f"{source.stem}.aside{end}")
                source.rename(side)
                aside.append((side, target))
    for old, new in PACKAGES.items():
        source = ROOT / old.replace(".", "/") / "__init__.py"
        side = source.with_name("__init__.aside.py")
        source.rename(side)
        aside.append((side, ROOT / new.replace(".", "/") / "__init__.py"))
    for side, target in aside:
        target.parent.mkdir(parents=True, exist_ok=True)
        side.rename(target)
    for target in {target.parent for _, target in aside}:
        init = target / "__init__.py"
        if not init.exists():
            init.write_text("")
    git("add", "-A")


if __name__ == "__main__":
    main()
