"""One authority behind three faces: what it refuses is refused by each of them, in the same words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from broker.cli import main as cli
from broker.client.request import Management
from broker.errors import OperatorError
from tests.wire.apiclient import Answered, Api
from tests.wire.conftest import RunningBroker, StartBroker, wait_until
from tests.wire.secured import PASSWORD, Secured
from tests.wire.terminus import connected, is_silent, send, take
from tests.wire.test_three_faces import (
    RELOAD,
    Operation,
    add,
    apply,
    bind,
    bridge,
    change,
    delete,
    log_level,
    move,
    producers,
    purge,
    unbind,
    unbridge,
)

pytestmark = pytest.mark.wire

RULES = """\
rules:
  - allow: all
    users: [root]
  - allow: connect
  - allow: all
    users: [alice]
    addresses: ["a.#", $temporary]
  - allow: create
    addresses: [$temporary]
"""
USERS = {"alice": "", "bob": "", "root": ""}
POLICIES = "policies: [{match: '*.news', kind: topic}]\n"
# So many lines about one host are more than the log would hold.
QUIET = "log_lines_per_peer: 0\n"
QUEUE, BROKER = "org.sluice.queue", "org.sluice.broker"


class Known(Api):
    """The API as one user."""

    def __init__(self, broker: RunningBroker, user: str) -> None:
        super().__init__(broker)
        pair = b64encode(f"{user}:{PASSWORD}".encode()).decode()
        self._said = {"Authorization": f"Basic {pair}"}

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answered:
        return super().call(method, path, body, (headers or {}) | self._said, raw)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("faces")
    start = partial(RunningBroker, folder / "broker", args=())
    found = Secured(start, folder, RULES, USERS, QUIET, POLICIES)
    with Management(found.url("root")) as root:
        for team in ("a", "b"):
            for name in ("one", "two"):
                root.call("CREATE", QUEUE, f"{team}.{name}", {})
            root.call("CREATE", "org.sluice.topic", f"{team}.news", {})
        root.call("CREATE", "org.sluice.binding", attributes={"source": "b.news", "target": "b.two"})
        root.call("CREATE", "org.sluice.bridge", "b.one->b.two", {})
    yield found
    found.broker.stop()
    assert "Traceback" not in found.broker.log, found.broker.log


REFUSED = (
    add("queue", "b.new"),
    add("topic", "b.new"),
    add("queue", "b.one"),
    add("queue", "a.new", dead_letter_address="b.one"),
    change("queue", "b.one", max_count=5),
    change("queue", "b.gone", max_count=5),
    change("queue", "a.one", dead_letter_address="b.one"),
    delete("queue", "b.one"),
    delete("queue", "b.gone"),
    delete("topic", "b.news"),
    bind("a.news", "b.one"),
    bind("b.news", "a.one"),
    bridge("a.one", "b.one"),
    bridge("b.one", "a.one"),
    unbridge("b.one", "b.two"),
    producers("stop", "b.one"),
    producers("stop", "*.one"),
    producers("stop", None),
    producers("start", None),
    purge("b.one"),
    purge("b.one", dry_run=True),
    purge("b.gone"),
    move("b.one", "a.one"),
    move("a.one", "b.one"),
    move("a.one", "b.gone", dry_run=True),
    apply("policies: []\n"),
    RELOAD,
    log_level("sluice.http", "error"),
)


def by_cli(secured: Secured, user: str, operation: Operation, folder: Path, capsys: Any, patch: Any) -> str:
    """What the command line says on standard error; nothing if it is done."""
    words = []
    for word in operation.cli:
        if word.startswith("FILE "):
            file = folder / "mine.yaml"
            file.write_text(word[5:])
            word = str(file)
        words.append(word)
    patch.setenv("SLUICE_BROKER", secured.url(user))
    capsys.readouterr()
    status = cli.main(words)
    said: str = capsys.readouterr().err
    assert status == (1 if said else 0), operation
    return said.partition(": ")[2].strip()


def by_http(secured: Secured, user: str, operation: Operation) -> str:
    answered = Known(secured.broker, user).call(*operation.http)
    if answered.status < 300:
        return ""
    assert answered.status == 403, answered
    return answered.error


def by_amqp(secured: Secured, user: str, operation: Operation) -> str:
    with Management(secured.url(user)) as management:
        try:
            management.call(**operation.amqp)
        except OperatorError as fault:
            return str(fault)
    return ""


@pytest.mark.parametrize("operation", REFUSED, ids=["-".join(each.cli)[:50] for each in REFUSED])
def test_three_faces_refuse_in_the_same_words(
    secured: Secured,
    operation: Operation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {
        by_cli(secured, "alice", operation, tmp_path, capsys, monkeypatch),
        by_http(secured, "alice", operation),
        by_amqp(secured, "alice", operation),
    }
    assert len(told) == 1, told
    assert told.pop().startswith("user 'alice' may not ")


def test_unbinding_is_refused_by_all(secured: Secured) -> None:
    """What one may not see isn't there, for whoever names a binding; HTTP names its ends instead."""
    operation = unbind("b.news", "b.two")
    assert by_amqp(secured, "alice", operation) == "no binding named 'b.news/b.two'"
    assert "may not change" in by_http(secured, "alice", operation)
    with Management(secured.url("root")) as root:
        assert root.call("READ", "org.sluice.binding", "b.news/b.two").status == 200


ALLOWED = (
    add("queue", "a.new"),
    change("queue", "a.new", max_count=5, flow_stop_count=4, flow_resume_count=2),
    bind("a.news", "a.new"),
    bridge("a.one", "a.new"),
    producers("stop", "a.>"),
    producers("start", "a.>"),
    purge("a.new"),
    move("a.new", "a.made"),
    unbridge("a.one", "a.new"),
    unbind("a.news", "a.new"),
    delete("queue", "a.new"),
    delete("queue", "a.made"),
)


@pytest.mark.parametrize("face", ["cli", "http", "amqp"])
def test_each_face_does_what_is_allowed(
    secured: Secured,
    face: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for operation in ALLOWED:
        if face == "cli":
            said = by_cli(secured, "alice", operation, tmp_path, capsys, monkeypatch)
        else:
            said = {"http": by_http, "amqp": by_amqp}[face](secured, "alice", operation)
        assert said == "", operation


# --- seeing


def test_lists_show_ones_own(secured: Secured, capsys: pytest.CaptureFixture[str]) -> None:
    mine = ["a.news", "a.one", "a.two"]
    api = Known(secured.broker, "alice")
    assert [row["name"] for row in api.get("/nodes")["items"]] == mine
    assert api.get("/queues")["total"] == 2
    assert api.get("/queues?sort=-depth_msgs&filter=one")["total"] == 1
    assert api.get("/bindings")["items"] == api.get("/bridges")["items"] == []
    assert api.get("/queues?topic=a.news")["items"] == []
    assert api.call("GET", "/queues?topic=b.news").status == 403
    with Management(secured.url("alice")) as management:
        body: Any = management.call("QUERY", QUEUE, body={"attributeNames": ["name"]}).body
        shown_names = [name for [name] in body["results"] if not name.startswith("$temporary")]
        assert sorted(shown_names) == ["a.one", "a.two"]
    assert cli.main(["config", "-b", secured.url("alice"), "queues"]) == 0
    shown = capsys.readouterr().out
    assert "a.one" in shown
    assert "b.one" not in shown


EXAMPLES: dict[tuple[str, str], Any] = {
    ("post", "/queues"): {"name": "b.new"},
    ("post", "/topics"): {"name": "b.new"},
    ("patch", "/queues/{name}"): {"max_count": 5},
    ("patch", "/topics/{name}"): {"max_count": 5},
    ("post", "/bindings"): {"source": "b.news", "target": "b.one"},
    ("delete", "/bindings"): {"source": "b.news", "target": "b.two"},
    ("post", "/bridges"): {"from": "b.two", "to": "b.one"},
    ("delete", "/bridges"): {"from": "b.one", "to": "b.two"},
    ("post", "/policies/apply"): {"text": "policies: []"},
    ("post", "/queues/{name}/groups/reset"): {"group": "g"},
    ("post", "/reload"): {},
    ("post", "/effect"): {"name": "b.one", "arguments": {}},
    ("post", "/producers/stop"): {"target": "b.one"},
    ("post", "/producers/start"): {"target": "b.one"},
    ("post", "/queues/{name}/purge"): {},
    ("post", "/queues/{name}/move"): {"target": "a.one"},
    ("put", "/log-levels"): {"levels": {"sluice.http": "error"}},
    ("post", "/trace"): {"connection": "c1"},
    ("post", "/cluster/move"): {"member": "b"},
}
# Whoever asks may log in and out and ask who it is.
ABOUT_ONESELF = {"/session"}


def test_no_route_is_forgotten(secured: Secured) -> None:
    """Every one the document has, the next one too: who has no right is refused, or shown an empty list."""
    api = Known(secured.broker, "bob")
    asked = 0
    for path, verbs in api.get("/openapi.json")["paths"].items():
        short = path.removeprefix("/api/v1")
        for verb in verbs.keys() - {"parameters"}:
            if short in ABOUT_ONESELF:
                continue
            named = short.replace("{name}", "b.one").replace("{id}", "c1").replace("{address}", "b.one")
            named = named.replace("{number}", "1")
            answered = api.call(verb.upper(), named, EXAMPLES.get((verb, short)))
            asked += 1
            if verb == "get" and answered.status == 200:
                rows = answered.body.get("items", answered.body.get("answers", ["unknown"]))
                assert rows == [], (verb, short, answered)
                continue
            assert answered.status == 403, (verb, short, answered)
            assert "may not" in answered.error, (verb, short)
    assert asked > 40


def test_a_link_of_others_is_as_one_that_is_not_there(secured: Secured) -> None:
    with secured.connected("root", "roots") as root, Management(secured.url("bob")) as bob:
        root.create_receiver("b.one")
        listed = Known(secured.broker, "root").get("/links?node=b.one")["items"]
        [link] = [each["identity"] for each in listed if each["container"] == "roots"]
        api = Known(secured.broker, "bob")
        told = set()
        for each in (link, "c999999.1"):
            answered = api.call("DELETE", f"/links/{each}")
            assert answered.status == 403
            told.add(answered.error)
            with pytest.raises(OperatorError) as refused:
                bob.call("DELETE", "org.sluice.link", each)
            told.add(str(refused.value))
        assert told == {"user 'bob' may not change '$broker'"}


def test_live_figures_are_for_who_may_see(secured: Secured) -> None:
    assert Known(secured.broker, "alice").call("GET", "/live?node=a.one").status == 403


def test_the_broker_s_history_is_for_who_may_see_the_broker(secured: Secured) -> None:
    """It sums up all nodes, so rights on some are not enough; a node's own needs rights on that node."""
    alice, root = Known(secured.broker, "alice"), Known(secured.broker, "root")
    assert root.call("GET", "/history?seconds=5").status == 200
    assert root.call("GET", "/history/b.one").status == 200
    refused = alice.call("GET", "/history?seconds=5")
    assert (refused.status, "may not" in refused.error) == (403, True)
    assert "rows" not in refused.body
    assert alice.call("GET", "/history/a.one").status == 200
    assert alice.call("GET", "/history/b.one").status == 403
    assert Known(secured.broker, "bob").call("GET", "/history").status == 403


# --- the management node's own ways


def test_a_reply_is_sent_by_whoever_asked_for_it(secured: Secured) -> None:
    with secured.connected("alice") as alice, secured.connected("root") as root:
        requests = alice.create_sender("$management")
        ask = {"operation": "GET-TYPES"}
        send(requests, None, reply_to="b.one", properties=ask, correlation_id="1")
        secured.broker.wait_for_log("has nowhere to go: no node 'b.one'")
        assert is_silent(root.create_receiver("b.one"))
        send(requests, None, reply_to="a.two", properties=ask, correlation_id="2")
        wait_until(lambda: _depth(secured, "a.two") == 1, 15, "the answer")
        alice.create_receiver("a.two").receive(timeout=20)


def _depth(secured: Secured, name: str) -> int:
    with Management(secured.url("root")) as root:
        body: Any = root.call("READ", QUEUE, name).body
    depth: int = body["depth_msgs"]
    return depth


def test_a_name_is_escaped_in_every_face(secured: Secured) -> None:
    nasty = "evil\r\nSet-Cookie: a=b\x1b[31m"
    operation = replace(
        purge("x"),
        http=("POST", f"/queues/{quote(nasty, safe='')}/purge", {}),
        amqp={"operation": "purge", "type": BROKER, "body": {"name": nasty}},
    )
    for told in (by_http(secured, "alice", operation), by_amqp(secured, "alice", operation)):
        assert "evil\\r\\nSet-Cookie: a=b\\x1b[31m" in told
        assert told.isprintable()


# --- the broker's own


def test_routes_and_bridges_of_the_file_are_the_operators(start_broker: StartBroker, tmp_path: Path) -> None:
    """They work whatever rules say, and bring nobody else in by their way."""
    far = start_broker(policies="policies: [{match: 'news.#', kind: topic}]\n")
    more = f"""\
routes:
  - {{name: out, url: "{far.url}", address: news.eu, direction: out}}
bridges: [{{from: orders, to: archive}}]
"""
    rules = "rules: [{allow: [connect, send, create], users: [alice]}]\n"
    policies = "policies: [{match: 'news.#', kind: topic}]\n"
    secured = Secured(start_broker, tmp_path, rules, {"alice": ""}, more, policies)
    with secured.connected("alice") as alice:
        for name in ("orders", "archive"):
            alice.create_sender(name)
        with connected(far.url) as there:
            receiver = there.create_receiver("news.eu")
            # At both ends: a topic keeps nothing for a route that is on its way.
            secured.broker.wait_for_log("route 'out' is up")
            send(alice.create_sender("news.eu"), "one")
            assert take(receiver, 1) == ["one"]
