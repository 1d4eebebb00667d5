"""What a page points at is there: links, pictures, headings, files and tests that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = {
    str(page.relative_to(ROOT)): page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
# Files of the checkout that are named in running text.
NAMED = re.compile(
    r"(?<![\w/])((?:docs|tests|etc|policies|examples|bench|broker)/[\w./-]+\.(?:md|py|yaml|yml|json|svg|pyx|sh|service))\b"
)
SETTINGS = [path for path in (ROOT / "etc").rglob("*") if path.suffix in (".yaml", ".yml", ".service", ".py")]


def prose(page: Path) -> str:
    """A page without its blocks, where names may be somebody's."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[str]:
    """Targets within the checkout."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """A heading's anchor, as pages of Markdown are shown on the web."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = PAGES[name]
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_files_that_are_named_are_there(name: str) -> None:
    assert [path for path in NAMED.findall(prose(PAGES[name])) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_settings_name_are_there(path: Path) -> None:
    assert [
        each for each in re.findall(r"\bdocs/[\w./-]+\.md\b", path.read_text()) if not (ROOT / each).exists()
    ] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {(ROOT / "README.md").resolve()}
    pending = list(reached)
    while pending:
        page = pending.pop()
        for target in links(page):
            found = (page.parent / target.partition("#")[0]).resolve()
            if found.suffix == ".md" and found.exists() and found not in reached:
                reached.add(found)
                pending.append(found)
    assert [
        name for name, page in PAGES.items() if page.parent == ROOT / "docs" and page.resolve() not in reached
    ] == []
