"""One HTTP port for several cells, of which one stands still, or ends."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.wire import people
from tests.wire.apiclient import Answered, Api
from tests.wire.cells import (
    ARGS,
    CELLS,
    kill_cell,
    let_stand_still,
    one_in_each,
    page,
    settle,
    stopped,
    wait_for_cell,
)
from tests.wire.conftest import START_SECONDS, StartBroker, wait_until

pytestmark = pytest.mark.wire

# How long an answer may take while a cell is silent: it is waited for 5 s, on a machine that does other work.
BOUND_S = 12


def eventually(api: Api, method: str, path: str, body: object = None) -> Any:
    """Ask until it is answered with 200, and return the body."""
    answers: list[Answered] = []

    def is_answered() -> bool:
        answers.append(api.call(method, path, body))
        return answers[-1].status == 200

    wait_until(is_answered, 30, lambda: f"{method} {path} to be answered: {answers[-1]}", 0.1)
    return answers[-1].body


def test_a_cell_that_is_stopped_is_left_out_and_said(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_stand_still(monkeypatch)
    broker = start_broker(args=ARGS)
    settle(broker)
    api = Api(broker)
    names = one_in_each("silent")
    for name in names:
        api.post("/queues", {"name": name}, 201)
    client = BlockingConnection(broker.url, timeout=10)
    client.create_sender(names[1]).send(Message("x"))
    client.close()
    assert page(broker, "/readyz") == (200, "ready\n")
    with stopped(broker, 1):
        # The cell is asked, and doesn't do it when it goes on: whoever asked was told that it isn't done.
        assert api.call("POST", f"/queues/{names[1]}/purge", {}).error == "cell 1: it doesn't answer"
        # The first is asked at a cell that may not know yet; a stopped cell accepts nobody itself.
        for _ in range(4):
            began = time.monotonic()
            found = api.call("GET", "/queues?filter=silent.")
            assert time.monotonic() - began < BOUND_S
            assert {row["cell"] for row in found.body["items"]} == {0, 2}
            assert found.body["absent"] == {"1": "it doesn't answer"}
            assert found.headers["sluice-absent"] == "1"
        assert page(broker, "/healthz") == (503, "cell 1: it doesn't answer\n")
        assert page(broker, "/readyz") == (503, "cell 1: it doesn't answer\n")
        assert 'sluice_cell_up{cell="1"} 0\n' in page(broker, "/metrics")[1]
        refused = api.call("GET", f"/queues/{names[1]}")
        assert (refused.status, refused.error) == (503, "cell 1: it doesn't answer")
        assert api.get(f"/queues/{names[2]}")["cell"] == 2
        # Done in some cells only: it is told, and may be repeated.
        partly = api.call("POST", "/producers/stop", {"target": "silent.>"})
        assert partly.status == 503
        assert partly.error == "done in cells 0, 2 only; cell 1: it doesn't answer"
        assert partly.body["done"] == [0, 2]
        # By now each knows that it is silent, and nobody waits for it.
        began = time.monotonic()
        assert api.get("/broker")["cells"][1] == {"cell": 1, "error": "it doesn't answer"}
        assert time.monotonic() - began < 3

    # Each cell learns by itself that it answers again, and any of them may be reached.
    wait_until(lambda: api.get("/queues?filter=silent.")["absent"] == {}, 30, "cell 1 to answer", 0.1)
    assert eventually(api, "GET", "/holds")["holds"] == ["silent.>"]
    assert eventually(api, "GET", "/holds?cell=1")["holds"] == []
    assert eventually(api, "GET", f"/queues/{names[1]}")["depth_msgs"] == 1
    stops = eventually(api, "POST", "/producers/stop", {"target": "silent.>"})
    assert sorted(stops["nodes"]) == sorted(names)


def test_a_cell_that_is_killed_is_waited_for_or_said(start_broker: StartBroker) -> None:
    broker = start_broker(args=ARGS)
    settle(broker)
    api = Api(broker)
    names = one_in_each("killed")
    for name in names:
        api.post("/queues", {"name": name, "durable": True}, 201)
    for cell in range(CELLS):
        broker.lines.clear()
        old = kill_cell(broker, cell)
        # Whichever cell is gone, the port answers.
        began = time.monotonic()
        found = api.call("GET", "/queues?filter=killed.")
        assert time.monotonic() - began < BOUND_S
        assert found.status == 200
        assert {row["cell"] for row in found.body["items"]} >= {0, 1, 2} - {cell}
        wait_for_cell(broker, cell, old)
        wait_until(
            lambda: api.call("GET", "/queues?filter=killed.").body.get("total") == 3, 30, "all cells", 0.1
        )
        wait_until(lambda: page(broker, "/readyz")[0] == 200, 30, "all to be ready", 0.1)


def test_a_login_lasts_as_long_as_its_cell(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, more="  longest_pause: 0\n"), args=ARGS)
    api = Api(broker)
    given = {"user": "rita", "password": people.PASSWORDS["rita"]}
    cookie = {"Cookie": api.call("POST", "/session", given).headers["set-cookie"].partition(";")[0]}
    cell = int(cookie["Cookie"].partition("=")[2].partition(".")[0])
    for _ in range(6):
        assert api.call("GET", "/broker", headers=cookie).status == 200
    # A stream of figures that some other cell gives ends with the login.
    with closing(HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)) as connection:
        connection.request("GET", "/api/v1/live", headers=cookie)
        answer = connection.getresponse()
        assert answer.readline() == b"retry: 2000\n"
        assert api.call("DELETE", "/session", headers=cookie).status == 204
        answer.read()
    assert api.call("GET", "/broker", headers=cookie).status == 401
    cookie = {"Cookie": api.call("POST", "/session", given).headers["set-cookie"].partition(";")[0]}
    cell = int(cookie["Cookie"].partition("=")[2].partition(".")[0])
    wait_for_cell(broker, cell, kill_cell(broker, cell))
    assert api.call("GET", "/broker", headers=cookie).status == 401
    assert api.call("POST", "/session", given).status == 200


def test_a_request_whose_body_breaks_off_is_not_carried_out(start_broker: StartBroker) -> None:
    broker = start_broker(args=ARGS)
    settle(broker)
    api = Api(broker)
    names = one_in_each("broken")
    for name in names:
        api.post("/queues", {"name": name}, 201)
        client = BlockingConnection(broker.url, timeout=10)
        client.create_sender(name).send(Message("x"))
        client.close()
        head = f"POST /api/v1/queues/{name}/purge HTTP/1.1\r\nHost: 127.0.0.1:{broker.http_port}\r\n"
        with socket.create_connection(("127.0.0.1", broker.http_port)) as broken:
            broken.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{{".encode())
    # Of each cell, on connections that come after those.
    for name in names * 3:
        assert api.get(f"/queues/{name}")["depth_msgs"] == 1
        time.sleep(0.1)
