"""constants.py and constants.pxd are one list in two languages."""

from __future__ import annotations

import re
from pathlib import Path

from broker import constants

PXD = Path(constants.__file__).with_name("constants.pxd")


def test_both_files_say_the_same() -> None:
    text = PXD.read_text()
    compiled = {name: int(value) for name, value in re.findall(r"^ +([A-Z_]+) = (\d+)$", text, re.MULTILINE)}
    unbounded = re.search(r"SLUICE_UNBOUNDED (\d+)L", text)
    assert unbounded is not None
    compiled["UNBOUNDED"] = int(unbounded[1])
    plain = {name: value for name, value in vars(constants).items() if name.isupper()}
    assert compiled == plain


def test_what_arrive_answers_is_told_apart() -> None:
    assert len({constants.ACCEPTED, constants.REFUSED, constants.PARK, constants.OVERSENT}) == 4
    assert len({constants.TAKEN, constants.LATE, constants.VIOLATION}) == 3
