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
FILE = re.compile(r"`(?!tests/)([a-z_]+/[a-z_/]+)\.(?:pyx|py|pxd)`")
SECTION = re.compile(r"^## ", re.MULTILINE)
# Behind this a paragraph names files that only some messages, or some credits, pass.
ELSEWHERE = "Not on every way"


def walk(title: str) -> tuple[set[str], set[str]]:
    """The files on each way of a walk, and those on some ways, without their endings."""
    text = next(text for text in SECTION.split(PAGE.read_text()) if text.startswith(title))
    on_each, _, on_some = text.partition(ELSEWHERE)
    some = set(FILE.findall(on_some.partition("\n\n")[0]))
    return set(FILE.findall(on_each)) - some, some


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:pyx|py|pxd))`", PAGE.read_text())
    assert len(named) > 50
    missing = [
        name for name in named if not any((folder / name).exists() for folder in (ROOT / "broker", ROOT))
    ]
    assert not missing


def test_the_number_of_a_producers_credits_passes_the_files_that_the_page_names_for_it() -> None:
    rows = re.findall(
        r"^\| ([a-z ]+) \| (.*(?:`flow/|those of its share).*) \|$", PAGE.read_text(), re.MULTILINE
    )
    named = {words: set(FILE.findall(files)) for words, files in rows}
    for words, files in rows:
        if "those of its share" in files:
            named[words] |= named["its share"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.credits"],
        cwd=ROOT,
        env=os.environ | {"SLUICE_PURE": "1"},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert {words: set(files) for words, files in json.loads(done.stdout).items()} == named


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
@pytest.mark.parametrize("which", ["message", "durable"])
def test_a_message_passes_the_files_of_the_first_walk_and_no_others(
    passed: dict[str, list[str]], which: str
) -> None:
    on_each, on_some = walk("First walk")
    assert set(passed[which]) == on_each
    assert on_some == {"engine/parking", "store/journal", "engine/large"}


@pytest.mark.soak
@pytest.mark.timeout(BUILT_WITHIN_S)
def test_a_credit_passes_the_files_of_the_second_walk(passed: dict[str, list[str]]) -> None:
    on_each, _ = walk("Second walk")
    assert on_each <= set(passed["credit"])
