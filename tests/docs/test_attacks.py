"""Tests that docs/security.md names are there, and so are the attacks it has measured."""

from __future__ import annotations

import re

from bench.attacks.attacker import EVERY
from bench.attacks.told import BEGIN, DOCUMENT, END
from tests.docs.pages import ROOT

NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")


def test_each_test_that_answers_an_attack_is_there() -> None:
    named = NAMED.findall(DOCUMENT.read_text())
    assert len(named) > 50
    sources = {path.stem: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [pair for pair in named if not re.search(rf"^def {pair[1]}\(", sources.get(pair[0], ""), re.M)]
    assert missing == []


def test_what_was_measured_are_attacks_that_there_are() -> None:
    table = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    measured = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert measured == [name for name in EVERY if name in measured]
    assert measured
