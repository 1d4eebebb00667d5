"""The table of docs/security.md: one line an attack, of which each run replaces those it has measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.attacks.attacker import EVERY
from bench.attacks.machine import MOST_FOREIGN
from bench.attacks.measuring import Line

KEPT = 0.8
P99_MS = 50.0
DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "security.md"
BEGIN, END = "<!-- python -m bench.attacks --write -->\n", "<!-- end of bench.attacks -->"
HEAD = (
    "| attack | it takes | alone, msg/s | control | during it | kept | of alone | p99 control | p99 during it"
    " | longest turn |\n" + "| --- " * 10 + "|\n"
)


def is_good(line: Line) -> bool:
    """Whether the pair kept what it should."""
    return line.kept >= KEPT and line.attacked_p99_ms < P99_MS


def sentence(line: Line) -> str:
    """For whoever watches."""
    verdict = "" if is_good(line) else "  <-- not enough"
    verdict += f"  (others took {line.foreign:.0%})" if line.foreign > MOST_FOREIGN else ""
    return (
        f"{line.name}: {line.kept:.0%} kept of {line.control:,.0f}/s"
        f" ({_of_alone(line):.0%} of {line.alone:,.0f}/s alone), attacker {line.attacker:.0%},"
        f" p99 {line.attacked_p99_ms:.1f} ms, longest turn {line.turn_ms:.1f} ms{verdict}"
    )


def row(line: Line) -> str:
    """In Markdown."""
    cells = (
        line.name,
        f"{line.attacker:.0%}",
        *(f"{rate:,.0f}" for rate in (line.alone, line.control, line.attacked)),
        f"{line.kept:.0%}",
        f"{_of_alone(line):.0%}",
        *(f"{ms:.1f} ms" for ms in (line.control_p99_ms, line.attacked_p99_ms, line.turn_ms)),
    )
    return f"| {' | '.join(cells)} |\n"


def _of_alone(line: Line) -> float:
    return line.attacked / line.alone


def table(lines: Iterable[Line]) -> str:
    """The lines with their head."""
    return HEAD + "".join(map(row, lines))


def write(lines: Iterable[Line]) -> None:
    """Put them where the document has its place, in the catalogues' order; others stay as they were, and so
    does what was measured while something else ran.
    """
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = {each.split("|")[1].strip(): f"{each}\n" for each in old.splitlines() if each.startswith("| ")}
    rows |= {line.name: row(line) for line in lines if line.foreign <= MOST_FOREIGN}
    kept = "".join(rows[name] for name in EVERY if name in rows)
    DOCUMENT.write_text(f"{before}{BEGIN}{HEAD}{kept}{END}{after}")
