"""What the console's tests and its pictures look at: a broker in use, and a real Chromium to look with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    expect,
)
from proton import Message

from broker.client.link import Connection
from tests.wire.conftest import START_SECONDS, RunningBroker, wait_until

# Chromium's own services would ask the world for updates and suggestions.
FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


# A client or a page that begins has to get at the processor first, which others have for seconds.
PATIENCE_S = 30
PATIENCE_MS = PATIENCE_S * 1000

PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
    "device_scale_factor": 2,
}


class Clients:
    """Producers and consumers at work, each a process of its own; they are ended with ``close``."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, verb: str, address: str, *words: str) -> subprocess.Popen[bytes]:
        """`sluice send` or `sluice receive`, for two minutes at most."""
        process = subprocess.Popen(
            ["timeout", "120", sys.executable, "-m", "broker.cli.main", verb, address, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"SLUICE_BROKER": self._broker.url},
        )
        self._running.append(process)
        return process

    def close(self) -> None:
        """End them all."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(PATIENCE_S)
        self._running.clear()


class Api:
    """The broker's HTTP API, to see what a click has done."""

    def __init__(self, broker: RunningBroker) -> None:
        self.base = f"http://127.0.0.1:{broker.http_port}"

    def __call__(self, path: str, body: object = None, method: str | None = None) -> Any:
        """The JSON that is answered; a body makes it a POST."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.base}/api/v1{path}",
            data,
            {"Content-Type": "application/json"},
            method=method or ("GET" if data is None else "POST"),
        )
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def queue(self, name: str, kind: str = "queue") -> Any:
        """Every attribute of a node."""
        return self(f"/{kind}s/{quote(name, safe='')}")

    def names(self, kind: str = "queue") -> list[str]:
        """All nodes of a kind, up to a thousand."""
        return [row["name"] for row in self(f"/{kind}s?limit=1000&fields=name")["items"]]


class Watched:
    """A page, and what it should never do: complain, fail, or speak to another host."""

    def __init__(self, context: BrowserContext, base: str, allowed: Sequence[str] = ()) -> None:
        self.base = base
        # Statuses a test provokes: Chromium notes every answer of 400 and above.
        self.allowed = tuple(f"status of {status}" for status in allowed)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.faults: list[str] = []
        self.strangers: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda fault: self.faults.append(f"uncaught: {fault}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(each in message.text for each in self.allowed):
            self.faults.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.base}/", "data:")):
            self.strangers.append(request.url)

    def goto(self, place: str) -> Page:
        """A place of the console, by its hash."""
        self.page.goto(f"{self.base}/#/{place}")
        return self.page

    def node(self, kind: str, name: str) -> Page:
        """A node's page."""
        page = self.goto(f"{kind}/{quote(name, safe='')}")
        page.get_by_role("heading", level=1, name=name, exact=True).wait_for()
        return page

    def check(self) -> None:
        """It did nothing of what it should never do."""
        assert not self.faults, self.faults
        assert not self.strangers, self.strangers


@contextmanager
def chromium(playwright: Playwright, path: str) -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
    try:
        yield browser
    finally:
        browser.close()


Open = Callable[..., Watched]


def crowd(broker: RunningBroker, count: int) -> None:
    """So many empty queues, `queue.00000` and on. Nobody waits for each answer, which has nowhere to go."""
    with Connection(broker.url) as connection:
        sender = connection.sender("$management")
        for number in range(count):
            named = {"operation": "CREATE", "type": "org.sluice.queue", "name": f"queue.{number:05}"}
            sender.send(bytes(Message(properties=named, body={}, reply_to="nobody").encode()), 30)
        sender.flush(30)
    made = Api(broker)("/queues?limit=1")["total"]
    assert made == count, made


def filled(api: Api, clients: Clients, name: str, count: int) -> None:
    """A queue with messages, whose producer has gone."""
    api("/queues", {"name": name})
    clients.start("send", name, "--count", str(count), "--body", "hello").wait(PATIENCE_S)
    assert api.queue(name)["depth_msgs"] == count


def blocked(api: Api, clients: Clients, name: str) -> None:
    """A queue that stops a producer which has more to send."""
    clients.start("send", name, "--count", "1000000", "--body", "more")
    wait_until(
        lambda: name in api.names() and api.queue(name)["blocked_producers"] == 1,
        PATIENCE_S,
        f"{name} to block",
    )


def consumed(api: Api, name: str) -> None:
    """A queue whose consumer, a process of its own, has come."""
    wait_until(
        lambda: name in api.names() and bool(api.queue(name)["consumers"]),
        PATIENCE_S,
        f"a consumer of {name}",
    )


def confirm(page: Page, action: str) -> None:
    """Press a dialog's button and wait until the dialog is gone."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=action).click()
    expect(dialog).to_have_count(0)
