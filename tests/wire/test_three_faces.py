"""The same operation through the command line, HTTP and AMQP: it is done, or refused, and leaves the same.

Three brokers, one for each face, live through all operations in the same order; after each of them everything
an operator can see of them is compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.cli import main as cli
from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from broker.errors import SluiceError
from broker.manage.attributes import ROWS, SETTINGS
from tests.wire.apiclient import Api, quoted
from tests.wire.conftest import RunningBroker, wait_until

pytestmark = pytest.mark.wire

BROKER, QUEUE, TOPIC = "org.sluice.broker", "org.sluice.queue", "org.sluice.topic"
BINDING, BRIDGE = "org.sluice.binding", "org.sluice.bridge"
POLICIES = """policies:
  - match: "orders.>"
    max_count: 1000
  - match: "news.>"
    kind: topic
"""
NEW_POLICIES = "policies:\n  - match: 'orders.>'\n    max_count: 77\n  - match: 'stock.*'\n    max_count: 5\n"
DEADLINE_S = 30.0
# What is the same on every broker that has been through the same.
NODE = (
    *("name", "kind", *SETTINGS, "depth_msgs", "depth_bytes", "flowStopped", "flowStoppedCount"),
    *("flowStoppedBy", "flowEnforced", "heldBy", "producers", "consumers", "subscriptions"),
    *("received", "delivered", "dropped", "refused"),
)
SEEN: Mapping[str, tuple[str, ...]] = {
    QUEUE: NODE,
    TOPIC: NODE,
    BINDING: ("name", "source", "target"),
    BRIDGE: ("name", "from", "to", "selector", "durable", "configured", "state", "crosses"),
    "org.sluice.policy": ("name", "match", "settings"),
    BROKER: ("holds", "queues", "topics", "stopped_nodes", "depth_msgs"),
}


@dataclass(frozen=True)
class Operation:
    """One thing to do: by the command line's words, by HTTP's verb, path and body, by AMQP's request."""

    cli: tuple[str, ...]
    http: tuple[str, str, Any]
    amqp: Mapping[str, Any]
    refused: bool = False
    id: str = field(default="", compare=False)


def add(kind: str, name: str, refused: bool = False, **arguments: object) -> Operation:
    return Operation(
        ("config", "add", kind, name, *_arguments(arguments)),
        ("POST", f"/{kind}s", {"name": name, "arguments": arguments}),
        {"operation": "CREATE", "type": f"org.sluice.{kind}", "name": name, "attributes": arguments},
        refused,
    )


def change(kind: str, name: str, refused: bool = False, **arguments: object) -> Operation:
    return Operation(
        ("config", "set", kind, name, *_arguments(arguments)),
        ("PATCH", f"/{kind}s/{quoted(name)}", arguments),
        {"operation": "UPDATE", "type": f"org.sluice.{kind}", "name": name, "attributes": arguments},
        refused,
    )


def delete(kind: str, name: str, refused: bool = False) -> Operation:
    return Operation(
        ("config", "del", kind, name),
        ("DELETE", f"/{kind}s/{quoted(name)}", None),
        {"operation": "DELETE", "type": f"org.sluice.{kind}", "name": name},
        refused,
    )


def bind(source: str, target: str, refused: bool = False) -> Operation:
    ends = {"source": source, "target": target}
    return Operation(
        ("config", "bind", source, target),
        ("POST", "/bindings", ends),
        {"operation": "CREATE", "type": BINDING, "attributes": ends},
        refused,
    )


def unbind(source: str, target: str, refused: bool = False) -> Operation:
    return Operation(
        ("config", "unbind", source, target),
        ("DELETE", "/bindings", {"source": source, "target": target}),
        {"operation": "DELETE", "type": BINDING, "name": f"{source}/{target}"},
        refused,
    )


def bridge(source: str, target: str, refused: bool = False, **given: Any) -> Operation:
    words = [word for key, value in given.items() for word in (f"--{key}", value) if word is not True]
    return Operation(
        ("config", "add", "bridge", source, target, *words),
        ("POST", "/bridges", {"from": source, "to": target, **given}),
        {"operation": "CREATE", "type": BRIDGE, "name": f"{source}->{target}", "attributes": given},
        refused,
    )


def unbridge(source: str, target: str, refused: bool = False) -> Operation:
    return Operation(
        ("config", "del", "bridge", source, target),
        ("DELETE", "/bridges", {"from": source, "to": target}),
        {"operation": "DELETE", "type": BRIDGE, "name": f"{source}->{target}"},
        refused,
    )


def producers(action: str, target: str | None, refused: bool = False) -> Operation:
    return Operation(
        ("producers", action, "--all" if target is None else target),
        ("POST", f"/producers/{action}", {"target": target}),
        {"operation": f"{action}-producers", "type": BROKER, "body": {"target": target or ">"}},
        refused,
    )


def purge(name: str, dry_run: bool = False, refused: bool = False) -> Operation:
    return Operation(
        ("purge", name, *(["--dry-run"] if dry_run else [])),
        ("POST", f"/queues/{quoted(name)}/purge", {"dry_run": dry_run}),
        {"operation": "purge", "type": BROKER, "body": {"name": name, "dry_run": dry_run}},
        refused,
    )


def move(source: str, target: str, count: int = 0, dry_run: bool = False, refused: bool = False) -> Operation:
    words = [*(["--count", str(count)] if count else []), *(["--dry-run"] if dry_run else [])]
    given = {"target": target, "count": count, "dry_run": dry_run}
    return Operation(
        ("move", source, target, *words),
        ("POST", f"/queues/{quoted(source)}/move", given),
        {"operation": "move", "type": BROKER, "body": {"source": source, **given}},
        refused,
    )


def apply(text: str, refused: bool = False) -> Operation:
    """The command line takes a file: `FILE` stands for one with that text."""
    return Operation(
        ("config", "apply", f"FILE {text}"),
        ("POST", "/policies/apply", {"text": text, "file": "mine.yaml"}),
        {"operation": "apply", "type": BROKER, "body": {"text": text, "file": "mine.yaml"}},
        refused,
    )


def log_level(logger: str, level: str | None, refused: bool = False) -> Operation:
    return Operation(
        ("log-level", logger, "inherit" if level is None else level),
        ("PUT", "/log-levels", {"levels": {logger: level}}),
        {"operation": "log-levels", "type": BROKER, "body": {"logger": logger, "level": level}},
        refused,
    )


RELOAD = Operation(("config", "apply"), ("POST", "/reload", {}), {"operation": "apply", "type": BROKER})


def send(name: str, count: int) -> Callable[[RunningBroker], None]:
    """Not an operation, and the same on all three: messages, so that there is something to see."""

    def run(broker: RunningBroker) -> None:
        with Connection(broker.url) as connection:
            sender = connection.sender(name)
            for number in range(count):
                sender.send(sections.text_body(f"message {number}"), 20)
            sender.flush(20)
        wait_until(lambda: not Api(broker).get("/links?role=producer")["total"], 20, "the sender to be gone")

    return run


def _arguments(arguments: Mapping[str, object]) -> list[str]:
    words = []
    for key, value in arguments.items():
        if key == "durable":
            words.append("--durable")
            continue
        text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        words += ["--argument", f"{key}={text}"]
    return words


QPID: dict[str, Any] = {"qpid.max_count": 40, "qpid.flow_stop_count": 30}

# In this order, on each of the brokers.
STEPS: tuple[Operation | Callable[[RunningBroker], None], ...] = (
    add("queue", "plain"),
    add("queue", "plain", refused=True),
    add("queue", "a/b ä%2F"),
    add("queue", "durable", durable=True),
    add("queue", "counted", max_count=100),
    add("queue", "stopped", max_count=100, flow_stop_count=50, flow_resume_count=20),
    add("queue", "sized", max_size="1 MB", flow_stop_size="512 KB"),
    add("queue", "ring", max_count=10, overflow="ring"),
    add("queue", "rejecting", max_count=10, when_full="reject"),
    add("queue", "free", flow_control=False),
    add("queue", "qpid", **QPID),
    add("queue", "wrong", refused=True, max_count=10, flow_stop_count=20),
    add("queue", "unknown", refused=True, flow_stop_cuont=20),
    add("queue", "$own", refused=True),
    add("queue", "orders.eu"),
    add("queue", "orders.us", max_count=7),
    add("topic", "events"),
    add("topic", "news.eu"),
    change("queue", "plain", max_count=60),
    change("queue", "plain", flow_stop_count=10, flow_resume_count=4),
    change("queue", "counted", max_count=None),
    change("queue", "counted", refused=True, max_count=None),
    change("queue", "sized", consumer_flow_limit=5),
    change("queue", "nobody", refused=True, max_count=5),
    change("topic", "events", max_count=20),
    change("topic", "plain", refused=True, max_count=20),
    send("plain", 10),
    change("queue", "plain", flow_stop_count=20, flow_resume_count=15),
    change("queue", "plain", flow_stop_count=5, flow_resume_count=3),
    bind("events", "plain"),
    bind("events", "plain", refused=True),
    bind("events", "a/b ä%2F"),
    bind("plain", "ring", refused=True),
    bind("plain", "not.there.yet", refused=True),
    bind("events", "made.by.binding"),
    unbind("events", "plain"),
    unbind("events", "plain", refused=True),
    send("events", 4),
    bridge("counted", "orders.eu"),
    bridge("counted", "orders.eu", refused=True),
    bridge("sized", "orders.us", selector="colour = 'red'"),
    bridge("sized", "qpid", refused=True, selector="((("),
    bridge("durable", "free", durable=True),
    send("counted", 3),
    unbridge("counted", "orders.eu"),
    unbridge("counted", "orders.eu", refused=True),
    producers("stop", "orders.eu"),
    producers("stop", "orders.>"),
    producers("start", "orders.us"),
    producers("stop", None),
    producers("stop", "a.>.b", refused=True),
    producers("start", None),
    send("qpid", 12),
    move("qpid", "stopped", 5, dry_run=True),
    move("qpid", "stopped", 5),
    move("qpid", "qpid", refused=True),
    move("nobody", "qpid", refused=True),
    move("qpid", "not.there.yet", dry_run=True),
    move("stopped", "qpid"),
    purge("qpid", dry_run=True),
    purge("qpid"),
    purge("nobody", refused=True),
    apply(NEW_POLICIES),
    apply("policies: [{match: x, max_cuont: 1}]", refused=True),
    add("queue", "stock.tea"),
    RELOAD,
    log_level("sluice.http", "error"),
    log_level("sluice.http", None),
    log_level("sluice.htp", "error", refused=True),
    log_level("sluice.http", "loud", refused=True),
    delete("queue", "stock.tea"),
    delete("queue", "plain"),
    delete("queue", "plain", refused=True),
    delete("topic", "free", refused=True),
    delete("topic", "events"),
    delete("queue", "a/b ä%2F"),
)
OPERATIONS = [step for step in STEPS if isinstance(step, Operation)]


class Faces:
    """One broker for each face, and how an operation is done through it: whether it was refused."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brokers = [RunningBroker(folder / face, "", POLICIES, ()) for face in ("cli", "http", "amqp")]
        self.managements = [Management(broker.url) for broker in self.brokers]
        self._next = 0

    def close(self) -> None:
        for management, broker in zip(self.managements, self.brokers, strict=True):
            management.close()
            broker.stop()
            assert "Traceback" not in broker.log, broker.log

    def catch_up(self, number: int) -> None:
        """Everything before the operation of that number, where a test runs alone; and what it needs."""
        wanted = STEPS.index(OPERATIONS[number])
        while self._next < wanted:
            step = STEPS[self._next]
            self._next += 1
            if isinstance(step, Operation):
                self.do(step)
            else:
                for broker in self.brokers:
                    step(broker)
        self._next += 1

    def do(self, operation: Operation) -> list[bool]:
        return [self._by_cli(operation), self._by_http(operation), self._by_amqp(operation)]

    def _by_cli(self, operation: Operation) -> bool:
        words = []
        for word in operation.cli:
            if word.startswith("FILE "):
                file = self.folder / "mine.yaml"
                file.write_text(word[5:])
                word = str(file)
            words.append(word)
        before = os.environ.get("SLUICE_BROKER")
        os.environ["SLUICE_BROKER"] = self.brokers[0].url
        try:
            status = cli.main(words)
        finally:
            os.environ.pop("SLUICE_BROKER")
            if before is not None:
                os.environ["SLUICE_BROKER"] = before
        assert status in (0, 1), operation
        return status == 1

    def _by_http(self, operation: Operation) -> bool:
        answered = Api(self.brokers[1]).call(*operation.http)
        assert answered.status < 500, answered
        return answered.status >= 400

    def _by_amqp(self, operation: Operation) -> bool:
        try:
            self.managements[2].call(**operation.amqp)
        except SluiceError:
            return True
        return False

    def states(self) -> list[dict[str, Any]]:
        return [_settled(management) for management in self.managements]


def _settled(management: Management) -> dict[str, Any]:
    """The state once what the broker counts in all is what the nodes hold: no answer is on its way."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = _state(management)
        held = sum(row["depth_msgs"] for row in found[QUEUE])
        if found[BROKER][0]["depth_msgs"] == held:
            return found
        assert time.monotonic() < deadline, found


def _state(management: Management) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for type_, wanted in SEEN.items():
        columns = list(dict.fromkeys(name for name in wanted if name in ROWS[type_]))
        body: Any = management.call("QUERY", type=type_, body={"attributeNames": columns}).body
        rows = [dict(zip(columns, row, strict=True)) for row in body["results"]]
        # Reply addresses come and go with whoever asks.
        found[type_] = sorted(
            (_placeless(row) for row in rows if not str(row.get("name", "")).startswith("$")), key=repr
        )
    answer: Any = management.call("log-levels", type=BROKER, body={}).body
    found |= answer
    return found


def _placeless(row: dict[str, Any]) -> dict[str, Any]:
    """Without the folder a broker's files are in."""
    if "settings" in row:
        row["settings"] = [{"name": each["name"], "value": each["value"]} for each in row["settings"]]
    return row


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    found = Faces(tmp_path_factory.mktemp("faces"))
    yield found
    found.close()


@pytest.mark.parametrize(
    "number", range(len(OPERATIONS)), ids=["-".join(each.cli)[:60] for each in OPERATIONS]
)
def test_three_faces_leave_the_same(faces: Faces, number: int) -> None:
    operation = OPERATIONS[number]
    faces.catch_up(number)
    before = faces.states()[0]
    refused = faces.do(operation)
    assert refused == [operation.refused] * 3
    by_cli, by_http, by_amqp = faces.states()
    assert by_cli == by_http == by_amqp
    if operation.refused:
        assert by_cli == before


def ending(kind: str, number: str) -> Operation:
    """Of a connection or a link, whose ids differ from broker to broker."""
    return Operation(
        ("close", number),
        ("DELETE", f"/{kind}s/{number}", None),
        {"operation": "DELETE", "type": f"org.sluice.{kind}", "name": number},
    )


@pytest.mark.parametrize("face", ["cli", "http", "amqp"])
def test_three_faces_send_clients_away(faces: Faces, face: str) -> None:
    at = ("cli", "http", "amqp").index(face)
    broker, do = faces.brokers[at], (faces._by_cli, faces._by_http, faces._by_amqp)[at]
    api = Api(broker)

    def links() -> list[str]:
        return [str(row["identity"]) for row in api.get("/links?role=producer&sort=identity")["items"]]

    with Connection(broker.url, container_id=f"guest-{face}") as connection:
        connection.sender("qpid")
        connection.sender("ring")
        guest = api.get(f"/connections?filter=guest-{face}")["items"][0]["identity"]
        first, second = [each for each in links() if each.startswith(f"{guest}.")]
        assert not do(ending("link", first))
        assert first not in links()
        assert second in links()
        assert do(ending("link", first))
        assert not do(ending("connection", str(guest)))
        wait_until(lambda: api.get(f"/connections?filter=guest-{face}")["total"] == 0, 20, "it to be gone")
        assert do(ending("connection", str(guest)))


def test_there_are_enough_of_them() -> None:
    assert len(OPERATIONS) >= 40
