"""One HTTP port for several cells: whichever cell a request reaches, it is answered for all of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from broker.server.cells.directory import heaviest, key_of
from tests.needs import program
from tests.wire import people, web
from tests.wire.apiclient import Api, quoted
from tests.wire.cells import (
    ARGS,
    CELLS,
    kill_cell,
    names_in,
    one_in_each,
    page,
    pids_of,
    settle,
    wait_for_cell,
)
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.test_prometheus import Prometheus

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three cells that the tests of this module share."""
    broker = RunningBroker(tmp_path_factory.mktemp("cells"), "", "", ARGS)
    settle(broker)
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def api(cells: RunningBroker) -> Api:
    return Api(cells)


def test_there_is_one_port_for_http(cells: RunningBroker) -> None:
    assert len(re.findall(r"listening http://", cells.log)) == 1


def test_a_queue_is_made_read_changed_and_deleted_wherever_it_belongs(api: Api) -> None:
    for cell, name in enumerate(one_in_each("made")):
        made = api.call("POST", "/queues", {"name": name, "arguments": {"max_count": 7}})
        assert made.status == 201
        assert (made.body["name"], made.body["cell"]) == (name, cell)
        assert made.headers["location"] == f"/api/v1/queues/{name}"
        read = api.call("GET", f"/queues/{name}")
        assert (read.body["max_count"], read.body["cell"]) == (7, cell)
        old = {"If-Match": read.headers["etag"]}
        assert api.patch(f"/queues/{name}", {"max_count": 9})["max_count"] == 9
        assert api.call("PATCH", f"/queues/{name}", {"max_count": 1}, old).status == 412
        assert api.get(f"/queues/{name}/messages") == {"messages": [], "paged": 0, "cell": cell}
        assert api.get(f"/explain/{name}")["cell"] == cell
        assert api.get(f"/history/{name}")["cell"] == cell
        api.delete(f"/queues/{name}")
        assert api.call("GET", f"/queues/{name}").status == 404


def test_a_cell_is_said_by_a_parameter_and_by_the_address(api: Api) -> None:
    names = one_in_each("said")
    for name in names:
        api.post("/queues", {"name": name}, 201)
    assert api.get(f"/queues/{quoted(f'$cell/1/{names[1]}')}")["name"] == names[1]
    assert api.get(f"/queues/{names[1]}?cell=1")["cell"] == 1
    assert api.call("GET", f"/queues/{names[1]}?cell=0").status == 404
    assert [row["name"] for row in api.get("/queues?cell=2&filter=said.")["items"]] == [names[2]]
    assert api.get("/broker?cell=2")["cell"] == 2
    assert api.call("GET", "/broker?cell=3").error == "cell: there are 0 to 2"
    assert api.call("GET", f"/queues/{quoted('$cell/9/x')}").status == 400
    for name in names:
        api.delete(f"/queues/{name}")


def test_lists_are_merged_sorted_filtered_and_paged(cells: RunningBroker, api: Api) -> None:
    names = [f"paged.{number:04}" for number in range(1000)]
    connection = HTTPConnection("127.0.0.1", cells.http_port, timeout=START_SECONDS)
    for number, name in enumerate(names):
        body = json.dumps({"name": name, "arguments": {"max_count": (number * 7919) % 1000 + 1}})
        connection.request("POST", "/api/v1/queues", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()
        # The port has a limit of its own to how often one address may write.
        time.sleep(0.01)
    connection.close()

    def walked(query: str, limit: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            found = api.get(f"/queues?filter=paged.&limit={limit}&offset={len(rows)}&{query}")
            assert (found["total"], found["absent"]) == (1000, {})
            rows += found["items"]
            if not found["items"]:
                return rows

    assert [row["name"] for row in walked("sort=name&fields=name", 97)] == names
    assert [row["name"] for row in walked("sort=-name&fields=name", 333)] == names[::-1]
    by_limit = walked("sort=-max_count&fields=name,max_count,cell", 100)
    assert [row["max_count"] for row in by_limit] == list(range(1000, 0, -1))
    assert all(set(row) == {"name", "max_count", "cell"} for row in by_limit)
    assert {row["cell"] for row in by_limit} == {0, 1, 2}
    by_cell = [row["cell"] for row in walked("sort=-cell&fields=cell", 250)]
    assert by_cell == sorted(by_cell, reverse=True)
    [whole] = api.get("/queues?filter=paged.0500")["items"]
    assert whole["identity"] == whole["name"] == "paged.0500"
    assert api.call("GET", "/queues?sort=none").status == 400
    assert api.call("GET", "/queues?limit=0").status == 400
    for name in names:
        api.call("DELETE", f"/queues/{name}")


def test_connections_and_links_of_all_cells_are_listed_and_ended(cells: RunningBroker, api: Api) -> None:
    clients = []
    for name in one_in_each("linked"):
        client = BlockingConnection(cells.url, timeout=10)
        client.create_sender(name)
        clients.append(client)
    rows = api.get("/connections?sort=cell")["items"]
    assert [row["cell"] for row in rows] == [0, 1, 2]
    links = [row for row in api.get("/links?role=producer")["items"] if row["node"].startswith("linked.")]
    assert {row["cell"] for row in links} == {0, 1, 2}
    # Each cell counts its own.
    identity = rows[0]["identity"]
    twice = [row["cell"] for row in rows if row["identity"] == identity]
    if len(twice) > 1:
        refused = api.call("DELETE", f"/connections/{identity}")
        assert refused.status == 409
        assert refused.error == f"several cells have a '{identity}': say " + " or ".join(
            f"cell={cell}" for cell in twice
        )
    assert api.get(f"/connections/{identity}?cell=0")["container"] == rows[0]["container"]
    assert api.call("DELETE", f"/connections/{rows[2]['identity']}?cell=2").status == 204
    wait_until(lambda: api.get("/connections")["total"] == 2, 10, "the connection to be gone")
    assert api.call("DELETE", "/connections/nothing").status == 404
    for client in clients:
        client.close() if client is not clients[2] else None


def test_the_figures_of_all_cells_are_added_up(cells: RunningBroker, api: Api) -> None:
    before = api.get("/broker")
    for name in one_in_each("added"):
        client = BlockingConnection(cells.url, timeout=10)
        client.create_sender(name).send(Message("x"))
        client.close()
    found = api.get("/broker")
    assert found["depth_msgs"] - before["depth_msgs"] == 3
    assert found["received"] - before["received"] == 3
    assert [row["cell"] for row in found["cells"]] == [0, 1, 2]
    assert sum(row["depth_msgs"] for row in found["cells"]) == found["depth_msgs"]
    assert sorted(row["pid"] for row in found["cells"]) == sorted(pids_of(cells).values())
    assert api.get("/history")["rows"]
    for name in one_in_each("added"):
        assert api.post(f"/queues/{name}/purge", {})["purged"] == 1
        api.delete(f"/queues/{name}")


def test_what_is_about_all_is_done_in_all(api: Api) -> None:
    names = one_in_each("all")
    for name in names:
        api.post("/queues", {"name": name}, 201)
    assert sorted(api.post("/producers/stop", {"target": "all.>"})["nodes"]) == sorted(names)
    assert api.get("/holds")["holds"] == ["all.>"]
    assert all(api.get(f"/queues/{name}")["flowStopped"] for name in names)
    assert sorted(api.post("/producers/start", {"target": "all.>"})["nodes"]) == sorted(names)
    text = 'policies: [{match: "all.*", flow_stop_count: 5}]'
    tried = api.post("/policies/apply", {"text": text, "dry_run": True})
    assert sorted(tried["changed"]) == sorted(names)
    assert sorted(api.post("/policies/apply", {"text": text})["changed"]) == sorted(names)
    assert [api.get(f"/queues/{name}")["flow_stop_count"] for name in names] == [5, 5, 5]
    assert api.post("/policies/apply", {"text": "policies: [{match: x, nothing: 1}]"}, 400)
    assert sorted(api.post("/reload", {})["changed"]) == sorted(names)
    api.put("/log-levels", {"levels": {"sluice.amqp": "debug"}})
    for cell in range(CELLS):
        assert api.get(f"/log-levels?cell={cell}")["levels"]["sluice.amqp"] == "debug"
    api.put("/log-levels", {"levels": {"sluice.amqp": None}})
    for name in names:
        api.delete(f"/queues/{name}")


def test_events_and_reasons_of_all_cells_bear_their_cell(cells: RunningBroker, api: Api) -> None:
    names = one_in_each("told")
    for name in names:
        api.post("/queues", {"name": name, "arguments": {"flow_stop_count": 1}}, 201)
    clients = [BlockingConnection(cells.url, timeout=10) for _ in names]
    senders = [client.create_sender(name) for client, name in zip(clients, names, strict=True)]
    for sender in senders:
        sender.send(Message("x"))
    found = [each for each in api.get("/why")["answers"] if each["node"] in names]
    assert {(each["node"], each["cell"]) for each in found} == set(zip(names, range(3), strict=True))
    assert {each["cell"] for each in api.get(f"/why/{names[2]}")["answers"]} == {2}
    unknown = api.call("GET", "/why/nothing-of-that-name")
    assert (unknown.status, unknown.error[:33]) == (404, "no queue, topic, subscription or ")
    events = api.get("/events?count=1000&samples=false")
    assert [each["time"] for each in events] == sorted(each["time"] for each in events)
    stops = {(each["node"], each["cell"]) for each in events if each["event"] == "stopped"}
    assert set(zip(names, range(3), strict=True)) <= stops
    assert len(api.get("/events?count=2")) == 2
    assert api.get("/deadlocks")["deadlocks"] == []
    for client in clients:
        client.close()
    for name in names:
        api.delete(f"/queues/{name}")


def test_a_node_that_is_not_where_its_name_belongs_is_found(cells: RunningBroker, api: Api) -> None:
    """Subscriptions are in their topic's cell; dead letters stay in that of the queue they come from."""
    [topic] = names_in(0, CELLS, 1, "news")
    api.post("/topics", {"name": topic}, 201)
    client = BlockingConnection(cells.url, timeout=10)
    receivers = [client.create_receiver(f"topic://{topic}", name=f"reader-{each}") for each in range(6)]
    rows = api.get(f"/subscriptions?topic={topic}")["items"]
    assert len(rows) == 6
    assert {row["cell"] for row in rows} == {0}
    for row in rows:
        strays = heaviest(key_of(row["name"]), CELLS) != 0
        assert row.get("address") == (f"$cell/0/{row['name']}" if strays else None)
        assert api.get(f"/subscriptions/{quoted(row['name'])}")["cell"] == 0
        assert api.get(f"/queues/{quoted(row['name'])}/messages")["messages"] == []
        assert api.get(f"/history/{quoted(row.get('address', row['name']))}")["cell"] == 0
    assert len(receivers) == 6
    client.close()
    names = one_in_each("dying")
    for name in names:
        api.post("/queues", {"name": name, "arguments": {"dead_letter_address": "all.dead"}}, 201)
        client = BlockingConnection(cells.url, timeout=10)
        client.create_sender(name).send(Message("x"))
        receiver = client.create_receiver(name, credit=1)
        receiver.receive(timeout=10)
        receiver.reject()
        client.close()
    rows = api.get("/queues?filter=all.dead&sort=cell")["items"]
    assert [(row["name"], row["cell"], row["depth_msgs"]) for row in rows] == [
        ("all.dead", cell, 1) for cell in range(CELLS)
    ]
    for cell in range(CELLS):
        dead = quoted(f"$cell/{cell}/all.dead")
        assert len(api.get(f"/queues/{dead}/messages")["messages"]) == 1
        assert api.get(f"/why/{dead}")["answers"]
        assert api.get(f"/links?node={dead}")["total"] == 0
        assert api.post("/producers/stop", {"target": f"$cell/{cell}/all.dead"})["nodes"] == ["all.dead"]
        assert api.get(f"/holds?cell={cell}")["holds"] == ["all.dead"]
        assert api.post("/producers/start", {"target": "all.dead"})["nodes"] == ["all.dead"]
        assert api.call("DELETE", f"/queues/{dead}").status == 204
    for name in names:
        api.delete(f"/queues/{name}")


def test_metrics_of_all_cells_have_each_family_once(cells: RunningBroker, api: Api) -> None:
    strange = '# HELP "x" {y} '
    names = [*one_in_each("measured"), strange]
    for name in names:
        api.post("/queues", {"name": name}, 201)
    status, text = page(cells, "/metrics")
    assert status == 200
    heads = re.findall(r"(?m)^# (?:HELP|TYPE) (\S+) ", text)
    assert len(heads) == 2 * len(set(heads))
    for cell, name in enumerate(names[:3]):
        assert f'sluice_queue_depth_messages{{cell="{cell}",queue="{name}"}} 0\n' in text
        assert f'sluice_cell_up{{cell="{cell}"}} 1\n' in text
        assert f'\nprocess_resident_memory_bytes{{cell="{cell}"}} ' in text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line for line in samples if not re.match(r'\w+\{cell="[012]"[,}]', line)] == []
    assert sum('queue="# HELP \\"x\\" {y} "' in line for line in samples) > 10
    _, one = page(cells, "/metrics?cell=1")
    assert 'cell="1"' in one
    assert 'cell="0"' not in one
    assert page(cells, "/metrics?cell=7")[0] == 400
    for name in names:
        api.delete(f"/queues/{quoted(name)}")


def test_prometheus_scrapes_all_cells_at_once(start_broker: StartBroker, tmp_path: Path) -> None:
    server = program("prometheus")
    broker = start_broker(args=ARGS)
    settle(broker)
    api = Api(broker)
    names = one_in_each("scraped")
    for name in names:
        api.post("/queues", {"name": name}, 201)
    prometheus = Prometheus(server, tmp_path / "prometheus", broker)
    try:
        wait_until(prometheus.is_ready, START_SECONDS, "Prometheus")
        for cell, name in enumerate(names):
            assert prometheus.value(f'sluice_queue_depth_messages{{cell="{cell}",queue="{name}"}}') == 0
        assert prometheus.value("sum(sluice_queues)") == 3
        assert prometheus.value("up") == 1
        assert len(prometheus.query("sluice_cell_up == 1")) == CELLS
        old = kill_cell(broker, 1)
        wait_for_cell(broker, 1, old)
        wait_until(lambda: len(prometheus.query("sluice_cell_up == 1")) == CELLS, 30, "cell 1 to be scraped")
        groups = prometheus.get("rules")["groups"]
        assert "SluiceCellSilent" in {rule["name"] for group in groups for rule in group["rules"]}
    finally:
        prometheus.stop()


def test_live_figures_are_of_all_cells(cells: RunningBroker, api: Api) -> None:
    names = one_in_each("alive")
    for name in names:
        api.post("/queues", {"name": name}, 201)
    asked = [*names, "$cell/1/" + names[1], "$cell/0/gone"]
    query = "&".join(f"node={quoted(name)}" for name in asked)
    with closing(HTTPConnection("127.0.0.1", cells.http_port, timeout=START_SECONDS)) as connection:
        connection.request("GET", f"/api/v1/live?{query}")
        answer = connection.getresponse()
        told: list[tuple[str, Any]] = []
        kind = ""
        while len([each for each in told if each[0] == "broker"]) < 2:
            line = answer.readline().decode()
            if line.startswith("event: "):
                kind = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                told.append((kind, json.loads(line.removeprefix("data: "))))
    nodes = {(row["name"], row["cell"]) for kind, row in told if kind == "node"}
    assert nodes == set(zip(names, range(3), strict=True))
    # By the address that was asked for: the name alone belongs to another cell.
    assert ("gone", {"name": "gone", "cell": 0, "address": "$cell/0/gone"}) in told
    assert len(told[0][1]["cells"]) == 3
    for name in names:
        api.delete(f"/queues/{name}")


def test_clients_over_websocket_reach_every_cell(cells: RunningBroker) -> None:
    for name in one_in_each("web"):
        with web.Bridge(cells) as bridge:
            client = BlockingConnection(bridge.url, timeout=10)
            client.create_sender(name).send(Message("x"))
            receiver = client.create_receiver(name, credit=1)
            assert receiver.receive(timeout=10).body == "x"
            receiver.accept()
            client.close()


def test_the_document_says_that_a_cell_may_be_named(api: Api) -> None:
    paths = api.get("/openapi.json")["paths"]
    assert "cell" in [each["name"] for each in paths["/api/v1/queues/{name}"]["delete"]["parameters"]]
    assert "cell" in [each["name"] for each in paths["/api/v1/reload"]["post"]["parameters"]]
    assert "parameters" not in paths["/api/v1/session"]["post"]
    assert api.get("/session")["cells"] == CELLS


def test_rights_hold_over_cells_and_a_login_at_each(start_broker: StartBroker, tmp_path: Any) -> None:
    settings = people.settings_for(tmp_path, more="  longest_pause: 0\n")
    broker = start_broker(settings, args=ARGS)
    api = Api(broker)
    for name in (*one_in_each("orders"), *one_in_each("stock")):
        assert api.call("POST", "/queues", {"name": name}, people.basic("alice")).status == 201
    assert api.call("GET", "/queues").status == 401
    otto = people.basic("otto")
    mine = api.call("GET", "/queues", headers=otto)
    assert [row["name"] for row in mine.body["items"]] == sorted(one_in_each("orders"))
    for name in one_in_each("stock"):
        assert api.call("GET", f"/queues/{name}", headers=otto).status in (403, 404)
        assert api.call("DELETE", f"/queues/{name}", headers=people.basic("rita")).status == 403
    assert api.call("POST", "/producers/stop", {"target": None}, people.basic("rita")).status == 403
    given = {"user": "rita", "password": people.PASSWORDS["rita"]}
    login = api.call("POST", "/session", given)
    cookie = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
    # Each request comes to whichever cell has time.
    for _ in range(12):
        assert api.call("GET", "/session", headers=cookie).body["user"] == "rita"
        assert api.call("GET", "/broker", headers=cookie).status == 200
    assert api.call("DELETE", "/session", headers=cookie | {"Content-Type": "application/json"}).status == 204
    for _ in range(12):
        assert api.call("GET", "/broker", headers=cookie).status == 401
    forged = {"Cookie": cookie["Cookie"].replace("=", "=7.", 1)}
    assert api.call("GET", "/broker", headers=forged).status == 401
