"""The picture of docs/spark.md is a recording of what it claims."""

from __future__ import annotations

import re
from xml.etree.ElementTree import fromstring

from bench.sparkpicture import DEPTH, NAME, PHASES, STOP, Look, drawn
from tests.docs.pages import ROOT

PICTURE = ROOT / f"docs/images/{NAME}.svg"


def looks(depth: int = 100) -> list[Look]:
    """A run in which as much came as went."""
    end = sum(seconds for _, seconds in PHASES)
    return [
        Look(tick / 10, depth, tick % 20 > 5, tick * 50, tick * 50 - depth) for tick in range(int(end * 10))
    ]


def test_it_draws_both_panels_and_shades_what_was_stopped() -> None:
    picture = drawn(looks())
    fromstring(picture)
    assert picture.count("<polyline") == 3
    stops = len(looks()) // 20
    assert len(re.findall(rf'<rect x="[\d.]+" y="{DEPTH[0]}"', picture)) == stops


def test_the_recording_that_is_shown_never_passes_its_line() -> None:
    picture = PICTURE.read_text()
    fromstring(picture)
    points = re.findall(r'<polyline points="([^"]+)"', picture)[0]
    [line] = re.findall(rf'<text x="\d+" y="(\d+)"[^>]*>{STOP:,}<', picture)
    highest = min(float(point.split(",")[1]) for point in points.split())
    assert highest >= int(line) - 4 - 1  # its label stands 4 below the line, in whole pixels
