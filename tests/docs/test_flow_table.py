"""Every behaviour in docs/flow-control.md names a test that shows it and that ``pytest -m flow`` runs.

A citation is weak if it names a file and no test, a test that ``-m flow`` leaves out or that checks nothing,
or one that has nothing to do with the settings of its row.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/flow-control.md").read_text().partition("\n## Behaviours and their tests")[2]
CITED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
# A setting, or one of its values; what a call or a file looks like isn't one.
SETTING = re.compile(r"`([a-z][a-z_.]+)(?:: ([a-z_]+))?`")
CHECKS = ("raises", "expect", "wait_until", "await_", "check", "must", "holds", "audit")


def rows_of(table: str) -> list[list[str]]:
    """The cells of every behaviour."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if "behaviour |" not in line
    ]


ROWS = rows_of(TABLE)


@cache
def run_by_flow() -> frozenset[str]:
    """What ``pytest -m flow`` runs: file::name, of a class or a function."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "flow",
        "--collect-only",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    files = sorted({file for row in ROWS for file, _ in CITED.findall(row[-1])})
    done = subprocess.run(
        [*command, "-o", "addopts=", "--no-header", "-q", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.findall(r"^(tests/\S+?\.py)::(\w+)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return frozenset("::".join(each) for each in found)


@cache
def definitions(file: str) -> dict[str, ast.stmt]:
    tree = ast.parse((ROOT / file).read_text())
    return {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def weakness(row: list[str]) -> list[str]:
    """What is wrong with a row's citations."""
    cited = CITED.findall(row[-1])
    if not cited:
        return ["names no test"]
    found = []
    for file, name in cited:
        if not name:
            found.append(f"{file} names no test in it")
        elif name not in definitions(file) and not (
            file.startswith("tests/property") and name in (ROOT / file).read_text()
        ):
            found.append(f"{name} isn't in {file}")
        elif f"{file}::{name}" not in run_by_flow():
            found.append(f"{name} isn't run by -m flow")
        elif name in definitions(file) and not checks(definitions(file)[name], file):
            found.append(f"{name} checks nothing")
    texts = "\n".join((ROOT / file).read_text() for file, _ in cited if (ROOT / file).exists()).replace(
        "-", "_"
    )
    for setting, value in SETTING.findall(row[-2]):
        words = (setting.removeprefix("flow."), value)
        found += [f"no cited file knows {word}" for word in words if word and word not in texts]
    return found


def checks(test: ast.stmt, file: str) -> bool:
    """Whether a test can fail by what it says: it asserts, or calls something of its file that does."""
    for each in ast.walk(test):
        if isinstance(each, ast.Assert):
            return True
        if isinstance(each, ast.Call):
            called = each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
            if called.startswith(CHECKS):
                return True
            own = definitions(file).get(called)
            if own is not None and own is not test and checks(own, file):
                return True
    return False


def test_there_are_rows() -> None:
    assert len(ROWS) > 30
    assert {len(row) for row in ROWS} == {8}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_shown_by_tests_of_what_it_says(row: list[str]) -> None:
    assert weakness(row) == []


@pytest.mark.parametrize(
    ("citation", "reason"),
    [
        ("nothing", "names no test"),
        ("`tests/unit/config/test_thresholds.py`", "names no test in it"),
        ("`tests/unit/flow/test_gate.py::test_of_nothing`", "isn't in"),
        ("`tests/unit/test_units.py::test_sizes`", "isn't"),
        (
            "`tests/unit/flow/test_fairness.py::test_nobody_could_have_more_without_taking_it_from_one_with_no_more`",
            "knows when_full",
        ),
    ],
)
def test_a_weak_citation_is_noticed(citation: str, reason: str) -> None:
    row = ["Sends fail", *["–"] * 5, "`when_full`", citation]
    assert reason in " ".join(weakness(row))


def test_a_test_that_checks_nothing_is_noticed() -> None:
    [test] = ast.parse("def test_it(broker):\n    broker.stop()").body
    assert not checks(test, "tests/unit/flow/test_gate.py")
