"""The pictures of docs/concepts.md are what the command draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree.ElementTree import fromstring

import pytest

from bench.pictures import STOP, Look, gate, links, promised, window
from tests.docs.pages import ROOT

IMAGES = ROOT / "docs/images"


@pytest.mark.parametrize("draw", [links, promised, window], ids=lambda draw: draw.__name__)
def test_a_drawing_is_not_stale(draw: Callable[[], str]) -> None:
    assert (IMAGES / f"{draw.__name__}.svg").read_text() == draw(), "python -m bench.pictures"


def test_a_recording_shades_what_was_stopped_and_nothing_else() -> None:
    looks = [
        Look(second / 10, depth, 0, depth > 600) for second, depth in enumerate((0, 500, 900, 700, 500, 0))
    ]
    drawn = gate(looks)
    fromstring(drawn)
    assert len(re.findall(r'<rect x="[\d.]+" y="40"', drawn)) == 1


def test_the_recording_that_is_shown_never_passes_its_line() -> None:
    drawn = (IMAGES / "gate.svg").read_text()
    [points] = re.findall(r'<polyline points="([^"]+)"', drawn)
    [line] = re.findall(rf'<text x="46" y="(\d+)"[^>]*>{STOP}<', drawn)
    highest = min(float(point.split(",")[1]) for point in points.split())
    assert highest >= int(line) - 4 - 1  # its label stands 4 below the line, in whole pixels
