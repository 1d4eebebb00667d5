"""Sizes, durations and percentages, as people write them and as numbers.

Sizes become bytes (1 KB = 1024 B), durations milliseconds. Case and spaces do not matter.
"""

from __future__ import annotations

import re
from fractions import Fraction

SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
DURATION_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

KB = SIZE_UNITS["KB"]
MB = SIZE_UNITS["MB"]
GB = SIZE_UNITS["GB"]
SECOND_NS = 1_000_000_000

# The same patterns stand in the JSON Schemas, which know no flags: so case is spelled out.
SIZE_PATTERN = r"^\s*[0-9]{1,18}(\.[0-9]{1,9})?\s*([bB]|[kKmMgG][bB])\s*$|^\s*[0-9]{1,18}\s*$"
DURATION_PATTERN = r"^\s*[0-9]{1,18}(\.[0-9]{1,9})?\s*([mM][sS]|[sSmMhH])\s*$|^\s*[0-9]{1,18}\s*$"
PERCENT_PATTERN = r"^\s*0*(100|[0-9]{1,2})\s*%?\s*$"

# What can be written with as many digits, in the smallest unit.
MOST = 10**18 - 1

_AMOUNT = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(value: object) -> int:
    """Bytes; a plain number is bytes, a fraction of a byte is dropped. ValueError if it is no size."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _bounded(int(value), value)
    if isinstance(value, str) and re.match(SIZE_PATTERN, value, re.ASCII):
        return _bounded(_scale(value, SIZE_UNITS), value)
    raise ValueError(f"expected a size such as 65536, 512 KB or 10 MB, not {show(value)}")


def parse_duration(value: object) -> int:
    """Milliseconds; a plain number is milliseconds already. ValueError if it is no duration."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return _bounded(int(value), value)
    if isinstance(value, str) and re.match(DURATION_PATTERN, value, re.ASCII):
        return _bounded(_scale(value, DURATION_UNITS), value)
    raise ValueError(f"expected a duration such as 500 ms, 3s, 5m or 1h, not {show(value)}")


def parse_percent(value: object) -> int:
    """A whole number from 0 to 100, written ``50`` or ``50%``. ValueError if it is no percentage."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100:
        return int(value)
    if isinstance(value, str) and re.match(PERCENT_PATTERN, value, re.ASCII):
        return int(value.strip().rstrip("%"))
    raise ValueError(f"expected a whole percentage from 0 to 100 such as 50%, not {show(value)}")


def format_size(size: int) -> str:
    """The size in the largest unit that divides it, so that nothing is rounded: ``parse_size`` undoes it."""
    return _format(size, SIZE_UNITS, "B")


def format_duration(duration_ms: int) -> str:
    """The duration in the largest unit that divides it; ``parse_duration`` undoes it."""
    return _format(duration_ms, DURATION_UNITS, "ms")


def show(value: object) -> str:
    """A value as the operator wrote it, for an error's text."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "an empty value"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    return repr(str(value)) if isinstance(value, str) else str(value)


def _bounded(amount: int, value: object) -> int:
    if amount > MOST:
        raise ValueError(f"{show(value)} is too large: at most {MOST} in the smallest unit")
    return amount


def _scale(text: str, units: dict[str, int]) -> int:
    amount = _AMOUNT.fullmatch(text)
    assert amount is not None
    number, unit = amount.groups()
    factors = {name.lower(): factor for name, factor in units.items()}
    return int(Fraction(number) * factors.get(unit.lower(), 1))


def _format(amount: int, units: dict[str, int], smallest: str) -> str:
    for name, factor in reversed(units.items()):
        if amount and amount % factor == 0:
            return f"{amount // factor} {name}"
    return f"{amount} {smallest}"
