"""Names, bodies and reasons that are markup and scripts: a real Chromium shows them as the texts they are."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from broker.client.link import Connection
from broker.codec import sections
from tests.console.world import Api, Open
from tests.wire.conftest import RunningBroker

pytestmark = pytest.mark.wire

MARKUP = [
    "<img src=x onerror=window.stolen=1>",
    "<script>window.stolen=1</script>",
    '"><svg onload=window.stolen=1>',
    "javascript:window.stolen=1",
    "{{constructor.constructor('window.stolen=1')()}}",
    "'-window.stolen=1-'",
    "</title><iframe srcdoc='<script>parent.stolen=1</script>'>",
]


def harmless(page: Page) -> None:
    """Nothing of what was sent has become anything but text."""
    assert page.evaluate("window.stolen") is None
    assert (
        page.evaluate(
            "document.querySelectorAll('main img, main script, main iframe, main svg[onload]').length"
        )
        == 0
    )


@pytest.mark.parametrize("text", MARKUP)
def test_a_name_is_a_text(look: Open, api: Api, live: RunningBroker, text: str) -> None:
    api("/queues", {"name": text})
    with Connection(live.url, container_id=text[:200]) as connection:
        sender = connection.sender(text)
        sender.send(sections.text_body(text), 10)
        sender.flush(10)
        # High enough for a row of each node that tests before this one may have left.
        page = look(viewport={"width": 1280, "height": 4000}).node("queue", text)
        expect(page.get_by_role("heading", level=1)).to_have_text(text)
        page.get_by_role("button", name="Browse").click()
        expect(page.locator(".body").first).to_contain_text(text)
        expect(page.get_by_role("region", name="Producers")).to_contain_text(text[:200])
        harmless(page)
        page.get_by_role("button", name="Delete…").click()
        expect(page.get_by_role("dialog")).to_contain_text(text)
        page.keyboard.press("Escape")
        for place in ("nodes", "connections", "links", "log"):
            page.goto(f"{page.url.partition('#')[0]}#/{place}")
            expect(page.get_by_text(text[:200]).first).to_be_attached()
            harmless(page)


def test_an_address_that_commands_the_console_leads_nowhere(look: Open) -> None:
    page = look(faults=("404", "400")).goto("queue/%3Cimg%20src%3Dx%20onerror%3Dwindow.stolen%3D1%3E")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img")
    harmless(page)
    for place in (
        "javascript:window.stolen=1",
        "nodes?filter=%3Cscript%3Ewindow.stolen=1%3C/script%3E",
        "//evil",
    ):
        page.goto(f"{page.url.partition('#')[0]}#/{place}")
        expect(page.get_by_role("heading", level=1)).to_be_attached()
        harmless(page)


def test_no_script_runs_that_is_not_the_consoles(look: Open) -> None:
    looked = look()
    page = looked.goto("")
    looked.allowed = ("Content Security Policy", "status of 404")
    page.evaluate("""() => {
      const inline = document.createElement("script");
      inline.textContent = "window.stolen = 1";
      document.body.append(inline);
      const picture = document.createElement("img");
      picture.setAttribute("onerror", "window.stolen = 1");
      picture.src = "/nothing-here.png";
      document.body.append(picture);
      return new Promise((resolve) => picture.addEventListener("error", () => resolve(true)));
    }""")
    assert page.evaluate("window.stolen") is None
