"""What no code of the broker's does: run text as code, read objects from bytes, or parse YAML as anything
but data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "broker").rglob("*.py"))
# Cython's own grammar isn't Python's: their text is searched instead.
COMPILED = sorted((ROOT / "broker").rglob("*.pyx"))

CALLS = {"eval", "exec", "compile", "__import__", "execfile", "input", "breakpoint"}
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "marshal",
    "shelve",
    "code",
    "codeop",
    "xmlrpc",
    "ctypes.macholib",
}
# Whatever reads YAML reads plain data.
YAML = {"compose", "SafeLoader", "safe_load", "reader", "MarkedYAMLError", "YAMLError", "Mark", "Node"}
YAML |= {"MappingNode", "SequenceNode", "ScalarNode", "safe_dump", "dump", "SafeDumper"}
SHELLS = {
    "system",
    "popen",
    "spawnl",
    "spawnv",
    "execl",
    "execv",
    "execve",
    "execvp",
    "getoutput",
    "getstatusoutput",
}


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What must not be there: line and words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names if each.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in MODULES:
                yield node.lineno, str(node.module)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)
        elif isinstance(node, ast.Attribute) and _dotted(node).partition(".")[0] == "yaml":
            yield from ((node.lineno, each) for each in [_dotted(node)] if each.split(".")[1] not in YAML)


def _of_call(node: ast.Call) -> Iterator[tuple[int, str]]:
    name = _dotted(node.func)
    if name in CALLS or name.removeprefix("builtins.") in CALLS:
        yield node.lineno, f"{name}()"
    if name.rpartition(".")[0] in ("os", "subprocess") and name.rpartition(".")[2] in SHELLS:
        yield node.lineno, f"{name}()"
    for keyword in node.keywords:
        if keyword.arg == "shell" and not (
            isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        ):
            yield node.lineno, f"{name}(shell=…)"
    if name == "yaml.compose" and not any(
        each.arg == "Loader" and _dotted(each.value) == "yaml.SafeLoader" for each in node.keywords
    ):
        yield node.lineno, "yaml.compose without SafeLoader"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# A member of a cell executes itself anew: the same interpreter with the words it was started with.
ALLOWED = {"broker/server/member.py": ["os.execv()"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_becomes_code(path: Path) -> None:
    allowed = ALLOWED.get(str(path.relative_to(ROOT)), [])
    assert [what for _, what in faults(ast.parse(path.read_text()))] == allowed


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_nor_where_it_is_compiled(path: Path) -> None:
    text = path.read_text()
    for word in ("eval(", "exec(", "pickle", "marshal", "yaml", "system(", "popen("):
        assert word not in text


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "import pickle",
        "from marshal import loads",
        "import yaml\nyaml.load(x)",
        "import yaml\nyaml.compose(x, Loader=yaml.Loader)",
        "import yaml\nyaml.compose(x)",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "__import__(name)",
    ],
)
def test_what_it_would_find(code: str) -> None:
    assert list(faults(ast.parse(code))) != []
