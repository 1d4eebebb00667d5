"""The manual says what the program does: both forms are as the parsers are, and every example parses."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from broker.cli.main import VERBS, verb_of
from broker.cli.terminal import manual
from broker.manage.events.schema import KINDS
from tests.needs import program

ROOT = Path(__file__).parents[3]
EXAMPLES = [(verb, command) for verb in VERBS for command, _ in verb_of(verb)[0].EXAMPLES]
# They print no data: a server's log, a schema or a script, which is what it is.
NO_JSON = {"serve", "schema", "completion"}


@pytest.mark.parametrize(("file", "written"), [("man/sluice.1", manual.page), ("cli.md", manual.markdown)])
def test_the_manual_is_what_the_parsers_say(file: str, written: object) -> None:
    assert callable(written)
    assert (ROOT / "docs" / file).read_text() == written(), "stale: make docs"


def test_it_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = manual.markdown()
    monkeypatch.setenv("SLUICE_BROKER", "amqp://elsewhere")
    monkeypatch.setenv("COLUMNS", "40")
    assert manual.markdown() == before


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples_and_prints_json(verb: str) -> None:
    module, parser = verb_of(verb)
    assert module.EXAMPLES
    assert "examples:" in parser.format_help()
    assert ("--json" in parser.format_help()) != (verb in NO_JSON)


@pytest.mark.parametrize(("verb", "command"), EXAMPLES)
def test_every_example_is_a_line_that_its_verb_takes(verb: str, command: str) -> None:
    if command.startswith("eval"):
        command = command.removeprefix('eval "$(').removesuffix(')"')
    words = shlex.split(command.partition(" | ")[0])
    assert words[:2] == ["sluice", verb]
    verb_of(verb)[1].parse_args(words[2:])


def test_groff_has_nothing_to_object_to() -> None:
    done = subprocess.run(
        [program("groff"), "-man", "-Tutf8", "-wall", str(ROOT / "docs/man/sluice.1")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "sluice config add queue orders --max-queue-count 1000" in done.stdout.replace("‐", "-")


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=str)
def test_every_kind_of_event_that_a_page_asks_for_exists(page: Path) -> None:
    asked = re.findall(r"sluice events[^`\n|]*?--kind[ =]([\w-]+)", page.read_text())
    assert [kind for kind in asked if kind not in {*KINDS, "KIND"}] == []
    assert page != ROOT / "docs" / "cli.md" or "stopped" in asked
