"""Prints what stands out in the code: ``make house``.

Something to look into, no limit to satisfy: a class is too large when it needs an "and" to describe it, and
splitting one idea to please a number makes the code worse.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "broker"
MOST = 10
# Module-level definitions of compiled files, which Python's parser doesn't read.
CLASS = re.compile(r"^(?:cdef\s+)?class\s+(\w+)")
METHOD = re.compile(r"^    (?:def|cdef|cpdef)\b[^=\n]*?(\w+)\(")
FUNCTION = re.compile(r"^(?:\s*)(?:def|cdef|cpdef)\b[^=\n]*?(\w+)\(.*")
ATTRIBUTE = re.compile(r"\bself\.(\w+)(?:\s*:[^=]+)?\s*=[^=]")


@dataclass
class Class:
    """A class, its file, and what it has."""

    name: str
    file: str
    methods: int = 0
    attributes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Function:
    """A function, its file, and how many lines it has."""

    name: str
    file: str
    lines: int


def sources() -> list[Path]:
    """Every file of code, compiled ones included."""
    return sorted(path for end in ("py", "pyx") for path in PACKAGE.rglob(f"*.{end}"))


def parsed(path: Path) -> tuple[list[Class], list[Function]]:
    """The classes and functions of a file."""
    file = str(path.relative_to(ROOT))
    text = path.read_text()
    if path.suffix == ".pyx":
        return compiled(file, text.splitlines())
    classes, functions = [], []
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.ClassDef):
            methods = [each for each in item.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            names = {each for method in methods for each in _assigned(method)}
            classes.append(Class(item.name, file, len(methods), names))
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(Function(item.name, file, (item.end_lineno or item.lineno) - item.lineno + 1))
    return classes, functions


def _assigned(method: ast.AST) -> Iterator[str]:
    for item in ast.walk(method):
        match item:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def compiled(file: str, lines: list[str]) -> tuple[list[Class], list[Function]]:
    """The same of Cython, by indentation."""
    classes: list[Class] = []
    starts: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        if found := CLASS.match(line):
            classes.append(Class(found[1], file))
        elif METHOD.match(line) and classes:
            classes[-1].methods += 1
        if found := FUNCTION.match(line):
            starts.append((number, found[1]))
        if classes:
            classes[-1].attributes.update(ATTRIBUTE.findall(line))
    ends = [start for start, _ in starts[1:]] + [len(lines)]
    return classes, [
        Function(name, file, end - start) for (start, name), end in zip(starts, ends, strict=True)
    ]


def table(title: str, rows: list[tuple[object, str]]) -> None:
    """Print the ten largest."""
    print(f"\n{title}")
    for figure, text in rows[:MOST]:
        print(f"  {figure!s:>6}  {text}")


def circles() -> list[list[str]]:
    """Modules that import each other in a loop, the largest loop first (Tarjan's strong components)."""
    graph = grimp.build_graph("broker", cache_dir=None)
    onto = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    back: defaultdict[str, set[str]] = defaultdict(set)
    for module, others in onto.items():
        for other in others:
            back[other].add(module)
    found: list[list[str]] = []
    left = set(onto)
    while left:
        start = min(left)
        circle = _reached(start, onto, left) & _reached(start, back, left)
        left -= circle
        if len(circle) > 1:
            found.append(sorted(circle))
    return sorted(found, key=len, reverse=True)


def _reached(start: str, onto: dict[str, set[str]], among: set[str]) -> set[str]:
    seen, pending = {start}, [start]
    while pending:
        for other in onto.get(pending.pop(), set()) & among - seen:
            seen.add(other)
            pending.append(other)
    return seen


def main() -> None:
    """Print it."""
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    classes: list[Class] = []
    functions: list[Function] = []
    for path in sources():
        more_classes, more_functions = parsed(path)
        classes += more_classes
        functions += more_functions
    loose = [path.name for path in sources() if path.parent == PACKAGE and path.name != "__init__.py"]
    print(f"{sum(lengths.values()):,} lines in {len(lengths)} files, {len(loose)} of them loose in broker/")
    largest = sorted(lengths, key=lambda path: lengths[path], reverse=True)
    table("files by lines", [(lengths[path], str(path.relative_to(ROOT))) for path in largest])
    by_methods = sorted(classes, key=lambda each: each.methods, reverse=True)
    table("classes by methods", [(each.methods, f"{each.name}, {each.file}") for each in by_methods])
    by_attributes = sorted(classes, key=lambda each: len(each.attributes), reverse=True)
    table(
        "classes by attributes",
        [(len(each.attributes), f"{each.name}, {each.file}") for each in by_attributes],
    )
    by_lines = sorted(functions, key=lambda each: each.lines, reverse=True)
    table("functions by lines", [(each.lines, f"{each.name}, {each.file}") for each in by_lines])
    counts = Counter(each.name for each in classes if not each.name.startswith("_"))
    twice = [(count, name) for name, count in counts.most_common() if count > 1]
    print(f"\n{len(twice)} public class names stand in more than one file")
    table("names with more than one meaning", [(count, name) for count, name in twice])
    print(f"\n{len(circles())} circles of imports")
    table("circles by size", [(len(each), ", ".join(each)) for each in circles()])


if __name__ == "__main__":
    main()
