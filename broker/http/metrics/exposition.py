"""Prometheus's text format, version 0.0.4: one family after another, each the bytes of its lines.

Written for tens of thousands of lines: what is the same in all lines of a family is joined, not formatted.
No single step takes long, so that the broker's own thread gets the interpreter in between.

It is the classic format, not OpenMetrics: there a counter's family has no `_total`, and the gauge
`sluice_queue_flow_stopped` and the counter `sluice_queue_flow_stopped_total` would be one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def label(name: str, value: str) -> str:
    """One label, its value escaped."""
    if '"' in value or "\\" in value or "\n" in value:
        value = value.translate(_ESCAPES)
    return f'{name}="{value}"'


def labels(*pairs: tuple[str, str]) -> str:
    """A set of labels in braces; nothing for none."""
    return "{" + ",".join(label(name, value) for name, value in pairs) + "}" if pairs else ""


def number(value: float) -> str:
    """A value as the format writes it; true is 1."""
    return str(+value)


def head(name: str, text: str) -> str:
    """HELP and TYPE: a counter if its name says so."""
    kind = "counter" if name.endswith("_total") else "gauge"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def family(name: str, text: str, samples: Iterable[tuple[str, float]]) -> bytes:
    """A family of a few samples: labels and value of each."""
    lines = [f"{name}{written} {number(value)}\n" for written, value in samples]
    return (head(name, text) + "".join(lines)).encode()


class Table:
    """Families with the same many labels: one sample of each for each of them."""

    def __init__(self, written: Sequence[str]) -> None:
        self._starts = [f"{each} " for each in written]
        self._zeros = [f"{each}0\n" for each in self._starts]

    def samples(self, name: str, values: Sequence[float], *, sparse: bool = False) -> bytes:
        """A family's samples, in the labels' order; where it is ``sparse`` there is none for a 0."""
        if sparse:
            pairs = zip(self._starts, values, strict=True)
            ends = [f"{start}{+value}\n" for start, value in pairs if value]
        elif any(values):
            ends = [f"{start}{+value}\n" for start, value in zip(self._starts, values, strict=True)]
        else:
            ends = self._zeros
        return (name + name.join(ends)).encode() if ends else b""
