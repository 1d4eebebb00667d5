"""The look of the jobs' reports: one HTML file without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --faint: #66717d; --line: #d5dbe1; --paper: #ffffff;
  --mark: #fff4e0; --bar: #9cc0e6; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe6ec; --faint: #93a0ac; --line: #37424d;
  --paper: #161c22; --mark: #3a3020; --bar: #2f5a86; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1240px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
p.note { color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: 3px 9px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--faint); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
tr.best td { background: var(--mark); font-weight: 600; }
pre { background: color-mix(in srgb, var(--ink) 7%, var(--paper)); padding: .7rem 1rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; background: #ffffff; border-radius: 6px; }
.share { display: inline-block; min-width: 5.5em; background: linear-gradient(to right, var(--bar)
  var(--part), transparent var(--part)); padding: 0 4px; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page; the parts are HTML."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>",
            "",
        ]
    )


def paragraph(text: str, kind: str = "") -> str:
    """One paragraph of plain text."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], marked: int | None = None) -> str:
    """A table; cells are HTML, ``marked`` is the row that stands out."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "\n".join(
        f"<tr{' class=best' if number == marked else ''}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        for number, row in enumerate(rows)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def share(part: float) -> str:
    """A share with a bar as long."""
    return f'<span class="share" style="--part: {min(max(part, 0.0), 1.0):.0%}">{part:.1%}</span>'


def source(text: str) -> str:
    """A file to copy."""
    return f"<pre>{escape(text)}</pre>"
