"""Every command block of README.md and docs/*.md, run as a reader would, each page against its own broker."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.broker import load_settings
from broker.config.policy_files import parse_policies
from broker.errors import ConfigError
from broker.security.rules import parse_acl
from tests.docs.pages import BESIDE, LANGUAGES, ROOT, Block, blocks, missing, pages, with_expected
from tests.docs.shell import Terminals
from tests.needs import program
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire

PAGES = {str(page.relative_to(ROOT)): page for page in pages()}
WITH_COMMANDS = [name for name, page in PAGES.items() if any(b.language == "sh" for b in blocks(page))]
# What a page may have at hand, as in a checkout.
CHECKOUT = ("policies", "etc", "examples", "docs", "README.md")


@pytest.fixture
def at_hand(name: str) -> None:
    """Every program that the page's commands call; before a broker is started for them."""
    for each in programs(name):
        program(each)


@pytest.fixture
def terminals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminals]:
    """Terminals in a checkout, beside a broker started as `make run` does, but on free ports."""
    folder = tmp_path / "sluice"
    folder.mkdir()
    for name in CHECKOUT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    settings = (folder / "etc/broker.yaml").read_text()
    broker = RunningBroker(Path(), settings, "", ("--policies", "policies"))
    terminals = Terminals(folder, f"127.0.0.1:{broker.port}", f"127.0.0.1:{broker.http_port}")
    try:
        yield terminals
    finally:
        terminals.close()
        broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_what_the_page_tells_to_type_does_what_it_says(
    name: str, at_hand: None, terminals: Terminals
) -> None:
    beside = []
    for block in with_expected(blocks(PAGES[name])):
        if block.language == "until":
            terminals.until(block.text)
        elif block.language == "sh" and set(block.words) & BESIDE:
            beside.append((block, terminals.begin(block.text, "endless" in block.words)))
        elif block.language == "sh":
            compare(name, block, terminals.run(block.text, "fails" in block.words))
    for block, out in beside:
        terminals.wait(lambda block=block, out=out: not unsaid(block, terminals.read(out)))  # type: ignore[misc]
    assert terminals.finish() == []
    for block, out in beside:
        compare(name, block, terminals.read(out))


def programs(name: str) -> list[str]:
    """Programs that a page's commands call and a machine may be without."""
    run = [block.text for block in blocks(PAGES[name]) if block.language in ("sh", "until")]
    return [each for each in ("curl",) if any(re.search(rf"\b{each}\b", text) for text in run)]


def unsaid(block: Block, said: str) -> list[str]:
    return [line for expected in block.expected for line in missing(expected.text, said)]


def compare(name: str, block: Block, said: str) -> None:
    for expected in block.expected:
        left = missing(expected.text, said)
        assert left == [], f"{name}:{expected.line}: not said by\n{block.text}\nwhich said\n{said}"


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_says_why(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`pytest -s` lists them."""
    found = with_expected(blocks(PAGES[name]))
    unknown = [f"{name}:{b.line}" for b in found if b.language not in LANGUAGES | {"until"}]
    assert unknown == [], f"a block names one of {sorted(LANGUAGES)}"
    silent = [f"{name}:{b.line}" for b in found if b.language == "console" and not b.not_run]
    assert silent == [], "say <!-- not run: why --> before it"
    with capsys.disabled():
        for block in found:
            if block.language == "console":
                print(f"\n{name}:{block.line}: {block.not_run}", end="")


@pytest.mark.parametrize("name", PAGES)
def test_settings_and_policies_on_the_page_are_taken(name: str, tmp_path: Path) -> None:
    for block in blocks(PAGES[name]):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            where = f"{name}:{block.line}"
            try:
                if block.text.startswith(("policies:", "#")) and "policies:\n" in block.text:
                    parse_policies(block.text, where)
                elif block.text.startswith(("rules:", "#")) and "rules:\n" in block.text:
                    parse_acl(block.text, where)
                else:
                    file = tmp_path / "broker.yaml"
                    file.write_text(block.text)
                    load_settings(file, {}, {})
            except ConfigError as fault:
                pytest.fail(f"{where}: {fault}")


@pytest.mark.parametrize(
    ("expected", "said", "left"),
    [
        ("a b", "x\na   b\ny", []),
        ("a\nb", "b\na", ["b"]),
        ("at ... of 900", "at 17 of 900", []),
        ("at … of 900", "at 17 of 800", ["at … of 900"]),
    ],
)
def test_what_counts_as_said(expected: str, said: str, left: list[str]) -> None:
    assert missing(expected, said) == left
