"""The page about the HTTP API, in a browser: it renders the document, and loads nothing from elsewhere."""

from __future__ import annotations

from tests.console.world import Open


def test_the_page_shows_every_request_of_the_document(look: Open) -> None:
    watched = look()
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{watched.base}/api/v1/docs")
    page.wait_for_selector("details")
    document = page.request.get(f"{watched.base}/api/v1/openapi.json").json()
    operations = sum(len(verbs) for verbs in document["paths"].values())
    assert page.locator("details").count() == operations
    page.get_by_role("searchbox").fill("purge")
    visible = page.locator("details:visible")
    assert visible.count() == 1
    visible.locator("summary").click()
    assert "dry_run" in visible.inner_text()
    assert "curl -X POST" in visible.inner_text()
    assert {url.removeprefix(f"{watched.base}/api/v1/") for url in asked} == {
        *("docs", "docs/docs.css", "docs/docs.js", "openapi.json"),
    }
