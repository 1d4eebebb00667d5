"""The walks of the page on the architecture: the files that they name are those that are passed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.builds import ROOT, broker_built, newest

PAGE = ROOT / "docs/design/architecture.md"
BUILT_WITHIN_S = 1800
FILE = re.compile(r"`([a-z_]+/[a-z_/]+)\.(?:pyx|py)`")
SECTION = re.compile(r"^## ", re.MULTILINE)


def section(title: str) -> str:
    """The text below a title of the page. Raises StopIteration where there is none."""
    return next(text for text in SECTION.split(PAGE.read_text()) if text.startswith(title))


def files(text: str) -> list[str]:
    """The broker's files that a text names, each once and in this order, without their endings."""
    return list(dict.fromkeys(FILE.findall(text)))


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:pyx|py|pxd))`", PAGE.read_text())
    assert len(named) > 50
    missing = [
        name for name in named if not any((folder / name).exists() for folder in (ROOT / "broker", ROOT))
    ]
    assert not missing


@pytest.fixture(scope="module")
def passed() -> dict[str, list[str]]:
    """The files that a broker has passed, by the walk; it is compiled for this where it is missing or old."""
    target = ROOT / "build" / "profiled"
    stamp = target / "built"
    if not stamp.exists() or stamp.stat().st_mtime < newest(ROOT / "setup.py"):
        broker_built("profiled", target)
        stamp.touch()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(target), str(ROOT)))}
    command = [sys.executable, "-m", "tests.docs.walks"]
    done = subprocess.run(
        command, cwd=target, env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.soak
@pytest.mark.timeout(BUILT_WITHIN_S)
def test_a_message_passes_the_files_of_the_first_walk_and_no_others(passed: dict[str, list[str]]) -> None:
    walk = section("First walk")
    plain, durable = (files(line) for line in re.findall(r"^- .*?(?=^-|\Z)", walk, re.MULTILINE | re.DOTALL))
    assert set(passed["message"]) == set(plain)
    assert set(passed["durable"]) - set(plain) == set(durable)


@pytest.mark.soak
@pytest.mark.timeout(BUILT_WITHIN_S)
def test_a_credit_passes_the_files_of_the_second_walk(passed: dict[str, list[str]]) -> None:
    assert set(files(section("Second walk"))) <= set(passed["credit"])
