"""Every verb of the HTTP API against a running broker, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from typing import Any

import pytest

from broker.client.errors import ClientError
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from tests.wire.apiclient import Api, quoted
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.frames import CLOSE, RawPeer
from tests.wire.seeing import await_number, good_neighbours

pytestmark = pytest.mark.wire

POLICIES = """policies:
  - match: "orders.>"
    kind: queue
    max_count: 1000
  - match: "news.>"
    kind: topic
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests here; each begins with it empty."""
    broker = RunningBroker(tmp_path_factory.mktemp("api"), "", POLICIES, ())
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def running(served: RunningBroker) -> Iterator[RunningBroker]:
    """With no node, hold, bridge or policy but those of its file."""
    yield served
    api = Api(served)
    api.post("/producers/start", {"target": None})
    for row in api.get("/bridges?limit=1000")["items"]:
        api.delete("/bridges", {"from": row["from"], "to": row["to"]})
    for row in api.get("/nodes?limit=1000&fields=name,kind")["items"]:
        if row["kind"] != "subscription":
            api.delete(f"/{row['kind']}s/{quoted(row['name'])}")
    api.post("/reload", {})


@pytest.fixture
def api(running: RunningBroker) -> Api:
    return Api(running)


def fill(broker: RunningBroker, name: str, count: int, body: bytes = sections.text_body("hello")) -> None:
    with Connection(broker.url) as connection:
        sender = connection.sender(name)
        for _ in range(count):
            sender.send(body, 20)
        sender.flush(20)


# --- nodes


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("name", ["plain", "a/b", "ä ö%2F?#&", "x/messages", "...", "a%41"])
def test_a_node_from_creation_to_deletion(api: Api, kind: str, name: str) -> None:
    made = api.call("POST", f"/{kind}s", {"name": name, "arguments": {"max_size": "1 MB"}})
    assert (made.status, made.body["name"], made.body["max_size"]) == (201, name, 1 << 20)
    assert made.headers["location"] == f"/api/v1/{kind}s/{quoted(name)}"
    path = f"/{kind}s/{quoted(name)}"
    assert api.get(path)["kind"] == kind
    assert api.post(f"/{kind}s", {"name": name}, 409)["error"] == f"'{name}' exists already"
    assert api.patch(path, {"consumer_flow_limit": 7})["consumer_flow_limit"] == 7
    assert api.patch(path, {"consumer_flow_limit": None})["consumer_flow_limit"] == 1000
    assert [row["name"] for row in api.get(f"/{kind}s")["items"]] == [name]
    api.delete(path)
    assert api.get(path, 404)["error"]
    assert api.get(f"/{kind}s")["total"] == 0


def test_a_node_is_found_under_its_own_kind_only(api: Api) -> None:
    api.post("/queues", {"name": "q"}, 201)
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        answered = api.call(method, "/topics/q", body)
        assert (answered.status, answered.error) == (404, "no topic named 'q'")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"name": ""}, 422),
        ({"name": 7}, 422),
        ({"name": "x", "colour": "red"}, 422),
        ({"name": "x" * 256}, 422),
        ([], 422),
        ({"name": "$x"}, 400),
        ({"name": "a\x1b"}, 400),
        ({"name": "."}, 400),
        ({"name": ".."}, 400),
        ({"name": "x", "arguments": {"flow_stop_cuont": 1}}, 400),
        ({"name": "x", "arguments": {"max_count": 10, "flow_stop_count": 20}}, 400),
        ({"name": "x", "arguments": {"max_count": {"a": []}}}, 400),
    ],
)
def test_what_is_no_new_queue_is_refused_and_changes_nothing(api: Api, body: object, status: int) -> None:
    assert api.post("/queues", body, status)["error"]
    assert api.get("/queues")["total"] == 0


def test_nobody_undoes_what_another_changed(api: Api) -> None:
    api.post("/queues", {"name": "q"}, 201)
    first = api.call("GET", "/queues/q").headers["etag"]
    changed = api.call("PATCH", "/queues/q", {"max_count": 100}, {"If-Match": first})
    assert (changed.status, changed.body["max_count"]) == (200, 100)
    late = api.call("PATCH", "/queues/q", {"max_count": 5}, {"If-Match": first})
    assert late.status == 412
    assert "changed meanwhile" in late.error
    assert api.call("DELETE", "/queues/q", headers={"If-Match": first}).status == 412
    assert api.get("/queues/q")["max_count"] == 100
    latest = changed.headers["etag"]
    assert api.call("GET", "/queues/q").headers["etag"] == latest
    both = f'"nonsense", {latest}'
    assert api.call("PATCH", "/queues/q", {"max_count": 6}, {"If-Match": both}).status == 200
    assert api.call("DELETE", "/queues/q", headers={"If-Match": "*"}).status == 204


def test_messages_change_no_etag_and_policies_do(running: RunningBroker) -> None:
    api = Api(running)
    fill(running, "orders.eu", 1)
    first = api.call("GET", "/queues/orders.eu").headers["etag"]
    fill(running, "orders.eu", 1)
    assert api.call("GET", "/queues/orders.eu").headers["etag"] == first
    api.post("/policies/apply", {"text": "policies: [{match: orders.>, max_count: 10}]"})
    assert api.call("GET", "/queues/orders.eu").headers["etag"] != first


# --- lists


@pytest.fixture
def many(running: RunningBroker) -> Api:
    api = Api(running)
    for number in range(25):
        api.post("/queues", {"name": f"q{number:02}", "arguments": {"max_count": 100 + number % 3}}, 201)
    api.post("/topics", {"name": "t"}, 201)
    fill(running, "q07", 3)
    fill(running, "q03", 9)
    return api


def names(page: dict[str, Any]) -> list[str]:
    return [row["name"] for row in page["items"]]


def test_a_list_comes_in_pages(many: Api) -> None:
    page = many.get("/queues?offset=20&limit=10&fields=name")
    assert page == {
        "items": [{"name": f"q{n}"} for n in range(20, 25)],
        "total": 25,
        "offset": 20,
        "limit": 10,
    }
    assert many.get("/queues?offset=1000")["items"] == []
    everything = [
        name for offset in range(0, 25, 7) for name in names(many.get(f"/queues?offset={offset}&limit=7"))
    ]
    assert everything == [f"q{n:02}" for n in range(25)]


def test_a_list_is_sorted(many: Api) -> None:
    assert names(many.get("/queues?sort=-depth_msgs&limit=3")) == ["q03", "q07", "q00"]
    assert names(many.get("/queues?sort=-name&limit=2")) == ["q24", "q23"]
    by_limit = many.get("/queues?sort=-max_count&fields=name,max_count")["items"]
    assert [row["max_count"] for row in by_limit] == [102] * 8 + [101] * 8 + [100] * 9
    # What has no value comes last either way.
    for sort in ("flowStoppedSince", "-flowStoppedSince"):
        assert many.get(f"/queues?sort={sort}")["total"] == 25


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("q1", 10),
        ("Q1", 10),
        ("*1", 3),
        ("q*", 25),
        ("1*", 0),
        ("q?7", 0),
        ("[q]", 0),
        ("nobody", 0),
        ("", 25),
    ],
)
def test_a_list_is_filtered(many: Api, text: str, wanted: int) -> None:
    assert many.get(f"/queues?filter={quoted(text)}")["total"] == wanted


@pytest.mark.parametrize("path", ["/queues", "/nodes", "/connections"])
def test_a_field_that_is_named_twice_is_shown_once(api: Api, path: str) -> None:
    assert api.get(f"{path}?fields=name,identity,name") == api.get(f"{path}?fields=name,identity")


def test_all_nodes_in_one_list(many: Api) -> None:
    assert many.get("/nodes")["total"] == 26
    assert names(many.get("/nodes?kind=topic")) == ["t"]


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "limit=0", "limit=1001", "limit=x", "sort=colour", "fields=name,colour", "kind=exchange"],
)
def test_what_no_list_can_do_is_said(api: Api, query: str) -> None:
    assert api.get(f"/nodes?{query}", 400)["error"]


@pytest.mark.parametrize(
    "path",
    *[
        [
            *("/queues", "/topics", "/subscriptions", "/nodes", "/bindings", "/bridges", "/routes"),
            *("/channels", "/connections", "/sessions", "/links", "/policies"),
        ]
    ],
)
def test_every_list_takes_the_same_parameters(api: Api, path: str) -> None:
    page = api.get(f"{path}?offset=0&limit=5&sort=-name&filter=x&fields=name,identity")
    assert page == {"items": [], "total": 0, "offset": 0, "limit": 5}


# --- what joins nodes


def test_bindings(running: RunningBroker) -> None:
    api = Api(running)
    ends = {"source": "news.eu", "target": "inbox"}
    assert api.post("/bindings", ends, 201)["name"] == "news.eu/inbox"
    assert api.post("/bindings", ends, 409)["error"]
    fill(running, "news.eu", 2)
    assert api.get("/queues/inbox")["depth_msgs"] == 2
    assert names(api.get("/bindings")) == ["news.eu/inbox"]
    api.delete("/bindings", ends)
    assert "is not bound" in api.delete("/bindings", ends, 404)["error"]


def test_bindings_whose_names_hold_slashes_are_told_apart(running: RunningBroker) -> None:
    api = Api(running)
    pairs = [("x", "b/c"), ("x/b", "c"), ("x%2Fb", "c")]
    ends = [{"source": source, "target": target} for source, target in pairs]
    for each in ends:
        api.post("/topics", {"name": each["source"]}, 201)
    made = [api.post("/bindings", each, 201) for each in ends]
    assert [{key: row[key] for key in each} for row, each in zip(made, ends, strict=True)] == ends
    assert [row["identity"] for row in made] == ["x/b%2Fc", "x%2Fb/c", "x%252Fb/c"]
    assert names(api.get("/bindings?topic=x%2Fb")) == ["x%2Fb/c"]
    api.delete("/bindings", ends[0])
    assert sorted(names(api.get("/bindings"))) == ["x%252Fb/c", "x%2Fb/c"]


def test_a_topic_s_subscriptions_by_its_name_or_by_a_pattern(running: RunningBroker) -> None:
    api = Api(running)
    for topic in ("news.eu", "news.us"):
        api.post("/topics", {"name": topic}, 201)
    api.post("/queues", {"name": "inbox"}, 201)
    api.post("/bindings", {"source": "news.eu", "target": "inbox"}, 201)
    with Connection(running.url) as connection:
        for address in ("news.eu", "news.us", "news.>", "other.>"):
            connection.receiver(address)
        wait_until(lambda: api.get("/subscriptions?limit=1")["total"] == 4, 10, "four subscriptions")
        found = api.get("/subscriptions?topic=news.eu")["items"]
        assert [row["topic"] for row in found] == ["news.>", "news.eu"]
        page = api.get("/subscriptions?topic=news.eu&limit=1&sort=-name&fields=topic")
        assert (page["items"], page["total"]) == ([{"topic": "news.eu"}], 2)
        assert api.get("/subscriptions?topic=news.eu&filter=news.eu*")["total"] == 1
        bound = api.get("/queues?topic=news.eu&sort=-depth_msgs")
        assert ([row["name"] for row in bound["items"]], bound["total"]) == (["inbox"], 1)
        assert api.get("/queues?topic=news.us")["items"] == []
        assert "no topic" in api.get("/queues?topic=nobody", 404)["error"]
        assert "no topic" in api.get("/subscriptions?topic=nobody", 404)["error"]
        assert "no topic" in api.get("/subscriptions?topic=inbox", 404)["error"]


def test_bridges(running: RunningBroker) -> None:
    api = Api(running)
    ends = {"from": "orders.eu", "to": "copies"}
    made = api.post("/bridges", {**ends, "selector": "colour = 'red'"}, 201)
    assert (made["name"], made["state"], made["crosses"]) == ("orders.eu->copies", "open", True)
    assert api.post("/bridges", ends, 409)["error"]
    assert api.post("/bridges", {"from": "a", "to": "b", "selector": "((("}, 400)["error"]
    api.delete("/bridges", ends)
    assert "no bridge" in api.delete("/bridges", ends, 404)["error"]


def test_a_subscription_is_seen_and_ended(running: RunningBroker) -> None:
    api = Api(running)
    with Connection(running.url) as connection:
        receiver = connection.receiver("news.eu", credit=10)
        wait_until(lambda: api.get("/subscriptions")["total"] == 1, 15, "the subscription")
        [row] = api.get("/subscriptions")["items"]
        assert (row["topic"], row["consumers"]) == ("news.eu", 1)
        path = f"/subscriptions/{quoted(row['name'])}"
        assert api.get(path)["name"] == row["name"]
        api.delete(path)
        with pytest.raises(ClientError, match="was deleted"):
            receiver.take(1, 20)
    assert api.get("/subscriptions")["total"] == 0
    assert api.delete("/subscriptions/nobody", None, 404)["error"]


# --- clients


def test_a_connection_is_seen_and_closed(running: RunningBroker) -> None:
    api = Api(running)
    with ExitStack() as stack, good_neighbours(running):
        connection = stack.enter_context(Connection(running.url))
        connection.sender("orders.a")
        [row] = [each for each in api.get("/links")["items"] if each["node"] == "orders.a"]
        seen = api.get(f"/connections/{row['connection']}")
        assert (seen["links"], seen["sessions"]) == (1, 1)
        sessions = [each for each in api.get("/sessions")["items"] if each["connection"] == row["connection"]]
        assert [(each["producers"], each["consumers"]) for each in sessions] == [(1, 0)]
        api.delete(f"/connections/{row['connection']}")
        with pytest.raises(ClientError, match="an operator closed this connection"):
            connection.wait(lambda: False, 20)
        # It is there until the broker has read that its client agrees.
        path = f"/connections/{row['connection']}"
        wait_until(lambda: api.call("GET", path).status == 404, 10, "the connection to be gone")
        assert api.get(path, 404)["error"]
        assert "no connection" in api.delete(f"/connections/{row['connection']}", None, 404)["error"]


def test_a_link_is_detached_and_its_connection_goes_on(running: RunningBroker) -> None:
    api = Api(running)
    with Connection(running.url) as connection:
        first, second = connection.sender("orders.a"), connection.sender("orders.b")
        first.send(sections.text_body("x"), 20)
        first.flush(20)
        assert api.get("/links?role=producer&node=orders.a")["total"] == 1
        assert api.get("/links?role=consumer&node=orders.a")["total"] == 0
        [row] = api.get("/links?node=orders.a")["items"]
        api.delete(f"/links/{row['identity']}")
        second.send(sections.text_body("x"), 20)
        second.flush(20)
        assert api.get("/links?node=orders.a")["total"] == 0
        assert api.get(f"/links?connection={row['connection']}")["total"] == 1
    assert "no link" in api.delete("/links/c9.9", None, 404)["error"]


def test_lists_while_clients_come_and_go(running: RunningBroker) -> None:
    """They are read in many turns: who has gone between two is left out."""
    api, stop = Api(running), threading.Event()

    def churn(number: int) -> None:
        while not stop.is_set():
            with Connection(running.url) as connection:
                for each in range(30):
                    connection.sender(f"orders.{number}.{each}")

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            for path in ("/links", "/sessions", "/connections", "/nodes?sort=-max_count"):
                assert api.get(f"{path}{'&' if '?' in path else '?'}limit=1000")["items"] is not None
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


# --- operators


def test_producers_are_stopped_and_started(running: RunningBroker) -> None:
    api = Api(running)
    fill(running, "orders.eu", 1)
    assert api.post("/producers/stop", {"target": "orders.>"}) == {"nodes": ["orders.eu"]}
    assert api.get("/holds") == {"holds": ["orders.>"]}
    assert api.get("/queues/orders.eu")["heldBy"] == "orders.>"
    assert api.post("/producers/start", {"target": "orders.>"}) == {"nodes": ["orders.eu"]}
    for nobody in ({}, {"target": ""}, {"targets": None}):
        assert api.post("/producers/stop", nobody, 422)["error"]
        assert api.post("/producers/start", nobody, 422)["error"]
    assert api.get("/holds") == {"holds": []}
    assert api.post("/producers/stop", {"target": None}) == {"nodes": ["orders.eu"]}
    assert api.get("/holds") == {"holds": [">"]}
    assert api.post("/producers/start", {"target": None}) == {"nodes": ["orders.eu"]}
    assert api.get("/holds") == {"holds": []}
    assert api.post("/producers/stop", {"target": "a.>.b"}, 400)["error"]


def test_a_stopped_producer_is_explained(running: RunningBroker) -> None:
    api = Api(running)
    api.post("/queues", {"name": "q", "arguments": {"max_count": 100, "flow_stop_count": 10}}, 201)
    with Connection(running.url) as connection:
        sender = connection.sender("q")
        for _ in range(10):
            sender.send(sections.text_body("x"), 20)
        sender.flush(20)
        await_number(running, "q", "depth_msgs", 10)
        [why] = api.get("/why/q")["answers"]
        assert (why["node"], why["cause"]) == ("q", "flow_stop_count")
        assert api.get("/why")["answers"] == [why] or api.get("/why")["answers"]
        assert api.get("/why/nobody", 404)["error"]
        effect = api.post("/effect", {"name": "q", "arguments": {"flow_stop_count": 50}})
        assert (effect["gate_before"], effect["gate_after"]) == ("stopped", "open")
        assert {"flow_stop_count"} <= set(effect["changed"])
        assert api.get("/queues/q")["flow_stop_count"] == 10
        api.patch("/queues/q", {"flow_stop_count": 50})
        assert api.get("/queues/q")["flowStopped"] is False
    less = api.post("/effect", {"name": "q", "arguments": {"flow_stop_count": 5}})
    assert (less["gate_before"], less["gate_after"]) == ("open", "stopped")
    assert api.post("/effect", {"name": "q", "arguments": {"flow_stop_count": 500}}, 400)["error"]
    assert api.post("/effect", {"name": "nobody"}, 404)["error"]


def test_policies_are_shown_with_their_places_tried_and_applied(running: RunningBroker) -> None:
    api = Api(running)
    fill(running, "orders.eu", 1)
    [orders, news] = sorted(api.get("/policies")["items"], key=lambda row: str(row["origin"]))
    assert (orders["match"], orders["origin"]) == ("orders.>", f"{running.policy_file}:2:12")
    assert {"name": "max_count", "value": 1000, "origin": f"{running.policy_file}:4:5"} in orders["settings"]
    assert news["match"] == "news.>"
    text = "policies: [{match: 'orders.>', max_count: 7}]"
    assert api.post("/policies/apply", {"text": text, "dry_run": True}) == {"changed": ["orders.eu"]}
    assert api.get("/queues/orders.eu")["max_count"] == 1000
    assert api.post("/policies/apply", {"text": text, "file": "mine.yaml"}) == {"changed": ["orders.eu"]}
    settings = {row["name"]: row for row in api.get("/explain/orders.eu")["settings"]}
    assert settings["max_count"] == {"name": "max_count", "value": 7, "origin": "mine.yaml:1:32"}
    wrong = {"text": "policies: [{match: x, max_cuont: 1}]", "file": "mine.yaml"}
    assert "mine.yaml:1:23: unknown key" in api.post("/policies/apply", wrong, 400)["error"]
    assert api.post("/reload", {}) == {"changed": ["orders.eu"]}
    assert api.get("/queues/orders.eu")["max_count"] == 1000
    assert api.get("/explain/not/yet/there")["exists"] is False


def test_messages_are_seen_dropped_and_moved(running: RunningBroker) -> None:
    api = Api(running)
    properties = sections.application_properties({"colour": "red", "n": 7})
    fill(
        running,
        "orders.a",
        3,
        sections.header(durable=True) + properties + sections.text_body("hellö"),
    )
    fill(running, "orders.a", 1, sections.binary_body(b"\xff" * 100_000))
    page = api.get("/queues/orders.a/messages?offset=1&count=3")
    assert (page["paged"], len(page["messages"])) == (0, 3)
    text, _, raw = page["messages"]
    assert text["message"]["application_properties"] == {"colour": "red", "n": 7}
    assert (text["message"]["body"], text["message"]["body_cut"], text["state"]) == ("hellö", False, "ready")
    assert (len(raw["message"]["body"]), raw["message"]["body_cut"]) == (4 * 4096, True)
    assert api.get("/queues/nobody/messages", 404)["error"]
    assert api.get("/queues/orders.a/messages?count=101", 400)["error"]
    move = {"target": "orders.b", "count": 2}
    assert api.post("/queues/orders.a/move", {**move, "dry_run": True}) == {"moved": 2}
    assert api.get("/queues/orders.a")["depth_msgs"] == 4
    assert api.post("/queues/orders.a/move", move) == {"moved": 2}
    await_number(running, "orders.b", "depth_msgs", 2)
    assert api.post("/queues/orders.a/purge", {"dry_run": True}) == {"purged": 2}
    assert api.post("/queues/orders.a/purge", {}) == {"purged": 2}
    assert api.get("/queues/orders.a")["depth_msgs"] == 0
    assert api.post("/queues/orders.a/move", {"target": "orders.a"}, 400)["error"]


# --- seeing it


def test_the_broker_and_its_events(running: RunningBroker) -> None:
    api = Api(running)
    assert api.get("/broker")["queues"] == 0
    fill(running, "orders.a", 1)
    assert api.get("/broker")["depth_msgs"] == 1
    wait_until(lambda: bool(api.get("/events?count=5&samples=false")), 15, "an event")
    assert api.get("/events?count=1001", 400)["error"]
    assert api.get("/deadlocks") == {"deadlocks": []}


def test_the_last_minutes_of_a_node(running: RunningBroker) -> None:
    api = Api(running)
    fill(running, "orders.a", 5)

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.get("/history/orders.a")["rows"]
        return found

    wait_until(lambda: len(rows()) >= 2 and rows()[-1]["rate_in"] == 0, 10, "two seconds")
    assert any(row["rate_in"] > 0 for row in rows()) or rows()[0]["depth_msgs"] == 5
    assert rows()[-1]["depth_msgs"] == 5
    times = [row["time"] for row in rows()]
    assert all(round(b - a, 2) == 1 for a, b in pairwise(times))
    found = api.get("/history/orders.a?seconds=1")
    assert len(found["rows"]) == 1
    assert found["thresholds"]["flow_stop_count"] == 800
    assert api.get("/history/nobody", 404)["error"]
    assert api.get("/history/orders.a?seconds=301", 400)["error"]


@contextmanager
def watching(broker: RunningBroker, query: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
    """Server-sent events as they come, name and data."""
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)
    connection.request("GET", f"/api/v1/live{query}")
    response = connection.getresponse()
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")

    def events() -> Iterator[tuple[str, Any]]:
        kind = ""
        while line := response.readline().decode():
            if line.startswith("event: "):
                kind = line[7:].strip()
            elif line.startswith("data: "):
                yield kind, json.loads(line[6:])

    try:
        yield events()
    finally:
        response.close()
        connection.close()


def test_live_figures(running: RunningBroker) -> None:
    fill(running, "orders.a", 1)
    with watching(running, "?nodes=orders.a,nobody&node=a%2Cb") as events:
        seen = [next(events) for _ in range(8)]
    assert [kind for kind, _ in seen] == ["broker", "node", "gone", "gone"] * 2
    assert seen[0][1]["depth_msgs"] == 1
    assert (seen[1][1]["name"], seen[1][1]["depth_msgs"]) == ("orders.a", 1)
    assert [seen[2][1], seen[3][1]] == [{"name": "nobody"}, {"name": "a,b"}]


def test_few_may_watch(running: RunningBroker) -> None:
    api = Api(running)
    with ExitStack() as stack:
        streams = [stack.enter_context(watching(running)) for _ in range(8)]
        for events in streams:
            next(events)
        assert "watch already" in api.get("/live", 429)["error"]
    wait_until(lambda: _may_watch(running), 15, "a place to be free again")
    assert "at most 50" in api.get(f"/live?nodes={','.join('abcdefghijklmnopqrstuvwxyz' * 2)}", 400)["error"]


def _may_watch(broker: RunningBroker) -> bool:
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)
    try:
        connection.request("GET", "/api/v1/live")
        return connection.getresponse().status == 200
    finally:
        connection.close()


# --- safety


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_writes_take_json_only(api: Api, kind: str) -> None:
    for method, path in (
        ("POST", "/queues"),
        ("POST", "/reload"),
        ("PATCH", "/queues/q"),
        ("DELETE", "/bindings"),
    ):
        headers = {"Content-Type": kind}
        answered = api.call(method, path, headers=headers, raw=b'{"name": "q"}')
        assert answered.status == 415, (method, path)
    assert api.get("/queues")["total"] == 0


def test_a_write_without_any_body_needs_the_header_too(api: Api) -> None:
    assert api.call("POST", "/reload").status == 415
    assert api.call("POST", "/reload", headers={"Content-Type": "application/json"}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_page_of_strangers_may_ask(api: Api, origin: str, method: str) -> None:
    answered = api.call(method, "/queues", {"name": "q"} if method == "POST" else None, {"Origin": origin})
    assert (answered.status, answered.error) == (403, "this origin may not ask")


def test_the_brokers_own_page_may(api: Api) -> None:
    origin = {"Origin": f"http://127.0.0.1:{api.port}"}
    assert api.call("POST", "/queues", {"name": "q"}, origin).status == 201


def test_a_configured_page_may(start_broker: StartBroker) -> None:
    api = Api(start_broker(config="websocket_origins: [https://ops.example]\n"))
    headers = {"Origin": "https://ops.example", "Host": "ops.example"}
    assert api.call("POST", "/queues", {"name": "q"}, headers).status == 201


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8672", "[", "127.0.0.1.evil.example"])
def test_a_name_that_was_pointed_here_reads_nothing(api: Api, host: str) -> None:
    answered = api.call("GET", "/queues", headers={"Host": host})
    assert answered.status == 403
    assert "host name" in answered.error


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "[::1]:80", "127.9.9.9"])
def test_names_of_this_machine_do(api: Api, host: str) -> None:
    assert api.call("GET", "/queues", headers={"Host": host}).status == 200


def test_writes_are_refused_where_others_can_reach_the_port(start_broker: StartBroker) -> None:
    everybody = "security: {allow_anonymous: true}\n"
    broker = start_broker(everybody, args=("--http", "0.0.0.0:0"))
    api = Api(broker)
    assert api.get("/broker")["queues"] == 0
    for method, path, body in (("POST", "/queues", {"name": "q"}), ("DELETE", "/queues/q", None)):
        answered = api.call(method, path, body)
        assert answered.status == 403
        assert "http_allow_writes" in answered.error
    allowed = start_broker(f"{everybody}http_allow_writes: true\n", args=("--http", "0.0.0.0:0"))
    Api(allowed).post("/queues", {"name": "q"}, 201)


def test_large_bodies_are_refused(api: Api, running: RunningBroker) -> None:
    large = json.dumps({"name": "q", "arguments": {"x": "y" * (1 << 20)}}).encode()
    assert api.call("POST", "/queues", raw=large).status == 413
    # Without saying beforehand how much comes.
    with socket.create_connection(("127.0.0.1", running.http_port), timeout=10) as client:
        head = (
            f"POST /api/v1/queues HTTP/1.1\r\nHost: 127.0.0.1:{running.http_port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        client.sendall(head.encode())
        sending = threading.Thread(target=_send_chunks, args=(client,))
        sending.start()
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
        sending.join(10)


def _send_chunks(client: socket.socket) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    try:
        for _ in range(32):
            client.sendall(chunk)
    except OSError:
        pass


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"name": "a", "name": }', b"[" * 100_000, b"nan"])
def test_what_is_no_json_is_refused(api: Api, raw: bytes) -> None:
    answered = api.call("POST", "/queues", raw=raw)
    assert answered.status in (400, 422), answered
    assert answered.error


@pytest.mark.parametrize(
    "path", ["/nothing", "/queues/", "/queues/a/b", "//queues", "/queues/%ff", "/Queues"]
)
def test_other_paths_are_not_found(api: Api, path: str) -> None:
    answered = api.call("GET", path)
    assert answered.status in (400, 404)
    assert answered.error


def test_other_methods_are_not_allowed(api: Api) -> None:
    answered = api.call("PUT", "/queues", {})
    assert (answered.status, answered.error) == (405, "method not allowed")


def test_every_answer_has_the_headers_that_keep_it_safe(api: Api) -> None:
    for method, path in (("GET", "/broker"), ("GET", "/nothing"), ("POST", "/queues"), ("GET", "/docs")):
        headers = api.call(method, path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_the_page_about_it_loads_nothing_from_elsewhere(api: Api) -> None:
    for name in ("/docs", "/docs/docs.css", "/docs/docs.js"):
        answered = api.call("GET", name)
        assert answered.status == 200
        assert b"http://" not in answered.body
        assert b"https://" not in answered.body


# --- management over AMQP has the same


def test_management_closes_and_previews_too(running: RunningBroker) -> None:
    api = Api(running)
    with Connection(running.url) as connection, Management(running.url) as management:
        connection.sender("orders.a")
        [row] = api.get("/links?node=orders.a")["items"]
        body = management.call("READ", "org.sluice.session", f"{row['connection']}/0").body
        assert isinstance(body, dict)
        assert body["producers"] == 1
        policy = management.call("READ", "org.sluice.policy", "orders.>").body
        assert isinstance(policy, dict)
        assert policy["origin"] == f"{running.policy_file}:2:12"
        given = {"name": "orders.a", "arguments": {"max_count": 5}}
        effect = management.call("effect", type="org.sluice.broker", body=given).body
        assert isinstance(effect, dict)
        assert effect["settings_after"]["max_count"] == 5
        management.call("DELETE", "org.sluice.link", row["identity"])
        assert api.get("/links?node=orders.a")["total"] == 0
        management.call("DELETE", "org.sluice.connection", row["connection"])
        with pytest.raises(ClientError, match="an operator closed this connection"):
            connection.wait(lambda: False, 20)


# --- what nobody should ask for


@pytest.mark.parametrize("value", [-1, 10**30, 0.5, 1e308, True, "", "x", "\x00", [], {}, {"a": None}])
@pytest.mark.parametrize("setting", ["max_count", "flow_control", "qpid.policy_type", "dead_letter_address"])
def test_a_setting_takes_what_it_means_and_refuses_the_rest(api: Api, setting: str, value: object) -> None:
    answered = api.call("POST", "/queues", {"name": "q", "arguments": {setting: value}})
    assert answered.status in (201, 400), answered


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "1" * 5000])
def test_numbers_that_are_none_are_refused(api: Api, number: str) -> None:
    raw = b'{"name": "q", "arguments": {"max_count": ' + number.encode() + b"}}"
    assert api.call("POST", "/queues", raw=raw).status in (400, 422)


def test_a_client_that_does_not_answer_is_closed_all_the_same(running: RunningBroker) -> None:
    api = Api(running)
    peer = RawPeer(running.port).open(container="silent")
    try:
        [row] = api.get("/connections?filter=silent")["items"]
        api.delete(f"/connections/{row['identity']}")
        assert peer.expect(CLOSE)
        wait_until(
            lambda: api.get("/connections?filter=silent")["total"] == 0, 15, "the connection to be gone"
        )
        with good_neighbours(running):
            pass
    finally:
        peer.socket.close()


def test_a_single_broker_is_no_member_of_a_cluster(api: Api) -> None:
    reason = {"error": "this broker is no member of a cluster"}
    assert api.get("/cluster", 404) == reason
    assert api.post("/cluster/move", {"member": "b"}, 404) == reason
    assert "extra" in api.post("/cluster/move", {"to": "b"}, 422)["error"].lower()
