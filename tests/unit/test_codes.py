"""codes.py and codes.pxd are one list in two languages."""

from __future__ import annotations

import re
from pathlib import Path

from broker import codes

PXD = Path(codes.__file__).with_name("codes.pxd")


def test_both_files_say_the_same() -> None:
    text = PXD.read_text()
    compiled = {name: int(value) for name, value in re.findall(r"^ +([A-Z_]+) = (\d+)$", text, re.MULTILINE)}
    unbounded = re.search(r"SLUICE_UNBOUNDED (\d+)L", text)
    assert unbounded is not None
    compiled["UNBOUNDED"] = int(unbounded[1])
    plain = {name: value for name, value in vars(codes).items() if name.isupper()}
    assert compiled == plain


def test_what_arrive_answers_is_told_apart() -> None:
    assert len({codes.ACCEPTED, codes.REFUSED, codes.PARK, codes.OVERSENT}) == 4
    assert len({codes.TAKEN, codes.LATE, codes.VIOLATION}) == 3
