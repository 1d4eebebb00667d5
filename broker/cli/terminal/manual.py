"""The manual, written from the verbs' own parsers. `make docs` writes both of its forms.

`python -m broker.cli.terminal.manual` prints the page sluice(1), with `--markdown` the text of docs/cli.md.

It doesn't depend on the terminal or on how this Python's argparse wraps its help.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from broker.cli.main import VERBS, verb_of

SUMMARY = "an AMQP 1.0 message broker whose heart is flow control"
BEFORE = (
    "The broker meant is -b URL, else the environment's SLUICE_BROKER, else amqp://127.0.0.1:5672.",
    "Where data is printed, --json prints it for programs. Names and texts that others chose are printed "
    "with control characters as escapes. Bars and full screens are for terminals only.",
)
STATUS = (
    ("0", "done"),
    ("1", "refused, or not all of it done; the broker's reason is on stderr"),
    ("2", "the command line or an input file makes no sense"),
    ("130", "interrupted"),
)


@dataclass(frozen=True, slots=True)
class Section:
    """One verb, or one of its sub-commands: how it is called, what it does, its arguments."""

    name: str
    synopsis: str
    text: str
    arguments: tuple[tuple[str, str], ...]
    examples: tuple[tuple[str, str], ...] = ()


def sections() -> Iterator[Section]:
    """All verbs in the order of the help, each before its sub-commands."""
    for verb in VERBS:
        module, parser = verb_of(verb)
        yield _section(parser, module.EXAMPLES)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for inner in action.choices.values():
                    yield _section(inner, (), ("help", "broker", "json"))


def _section(
    parser: argparse.ArgumentParser,
    examples: tuple[tuple[str, str], ...],
    told: tuple[str, ...] = ("help",),
) -> Section:
    """``told``: the arguments the reader knows already."""
    shown = [
        action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest not in told
    ]
    inner = [action for action in shown if isinstance(action, argparse._SubParsersAction)]
    others = [action for action in shown if action not in inner]
    flags = [action for action in others if action.option_strings]
    places = [action for action in others if not action.option_strings]
    words = [parser.prog, *(_bracketed(action) for action in flags), *map(_place, places)]
    return Section(
        parser.prog,
        " ".join([*words, *(["COMMAND"] if inner else [])]),
        parser.description or "",
        tuple((_called(action), _help(action)) for action in (*places, *flags)),
        examples,
    )


def _bracketed(action: argparse.Action) -> str:
    text = f"{action.option_strings[0]}{_value(action)}"
    return text if action.required else f"[{text}]"


def _place(action: argparse.Action) -> str:
    name = _name(action)
    return {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)


def _called(action: argparse.Action) -> str:
    if not action.option_strings:
        return _name(action)
    return ", ".join(action.option_strings) + _value(action)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    return f" [{_name(action)}]" if action.nargs == "?" else f" {_name(action)}"


def _name(action: argparse.Action) -> str:
    if action.metavar:
        return str(action.metavar)
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper()


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return re.sub(r"\s+", " ", text)


# --- as a manual page (groff's man macros)


def page() -> str:
    """The page sluice(1)."""
    lines = [
        '.TH SLUICE 1 "" "Sluice" "User Commands"',
        ".SH NAME",
        f"sluice \\- {_roff(SUMMARY)}",
        ".SH SYNOPSIS",
        ".B sluice",
        "VERB [ARGUMENTS]",
        ".SH DESCRIPTION",
    ]
    for text in BEFORE:
        lines += [_roff(text), ".PP"]
    lines += [".SH VERBS"]
    for section in sections():
        lines += _page_section(section)
    lines += [".SH EXIT STATUS"]
    for status, text in STATUS:
        lines += [".TP", f".B {status}", _roff(text)]
    lines += [".SH ENVIRONMENT", ".TP", ".B SLUICE_BROKER", "the broker that verbs speak to"]
    lines += [".TP", ".B SLUICE_*", _roff("settings of `sluice serve`, see docs/configuration.md")]
    return "\n".join(lines) + "\n"


def _page_section(section: Section) -> list[str]:
    lines = [f".SS {_roff(section.name)}", ".nf", _roff(section.synopsis), ".fi", ".PP"]
    lines += [".nf", *map(_roff, section.text.strip().splitlines()), ".fi"]
    for name, text in section.arguments:
        lines += [".TP", f".B {_roff(name)}", _roff(text) or "\\&"]
    if section.examples:
        lines += [".PP", "Examples:", ".PP", ".nf"]
        lines += [f"    {_roff(command)}   # {_roff(text)}" for command, text in section.examples]
        lines += [".fi"]
    return lines


def _roff(text: str) -> str:
    """Nothing in it is a request or an escape of groff's."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped


# --- as Markdown


def markdown() -> str:
    """The text of docs/cli.md."""
    rows = [f"| [`{verb}`](#sluice-{verb}) | {text} |" for verb, (_, text) in VERBS.items()]
    lines = [
        "# The command line",
        "",
        "Written by `make docs` from the program's own help; a test holds it to that, and runs the examples.",
        "`man docs/man/sluice.1` is the same as a manual page.",
        "",
        *(part for text in BEFORE for part in (text, "")),
        "| exit status | |",
        "|---|---|",
        *(f"| {status} | {text} |" for status, text in STATUS),
        "",
        "| verb | |",
        "|---|---|",
        *rows,
    ]
    for section in sections():
        lines += ["", *_markdown_section(section)]
    return "\n".join(lines) + "\n"


def _markdown_section(section: Section) -> list[str]:
    depth = "##" if section.name.count(" ") == 1 else "###"
    lines = [f"{depth} {section.name}", "", "```text", section.synopsis, "", section.text.strip(), "```"]
    if section.arguments:
        lines += ["", "| argument | |", "|---|---|"]
        lines += [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in section.arguments]
    if section.examples:
        width = max(len(command) for command, _ in section.examples)
        shown = (f"{command:<{width}}  # {text}" for command, text in section.examples)
        lines += [
            "",
            "<!-- not run: tests/wire/test_cli_operate.py runs them -->",
            "```console",
            *shown,
            "```",
        ]
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown() if "--markdown" in sys.argv[1:] else page(), end="")
