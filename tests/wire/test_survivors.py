"""What a broker accepted it starts with again, whatever contradicts it by then, and says what that is."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wire.apiclient import Api, quoted
from tests.wire.conftest import RunningBroker
from tests.wire.terminus import LASTING, connected, detach, selector, send, take

pytestmark = pytest.mark.wire

Again = Callable[..., RunningBroker]


@pytest.fixture
def again(tmp_path: Path) -> Any:
    """Start a broker on one data directory, after the one before was killed or stopped."""
    running: list[RunningBroker] = []

    def start(policies: str = "", config: str = "", kill: bool = True) -> RunningBroker:
        if running and kill:
            running[-1].signal(signal.SIGKILL)
        if running:
            running[-1].stop()
        running.append(RunningBroker(tmp_path / "broker", config, policies, ()))
        return running[-1]

    yield start
    running[-1].stop()
    assert "Traceback" not in running[-1].log, running[-1].log


def create(api: Api, kind: str, name: str, durable: bool = True, **arguments: object) -> None:
    api.post(f"/{kind}s", {"name": name, "durable": durable, "arguments": arguments}, 201)


def bind(api: Api, topic: str, queue: str) -> None:
    api.post("/bindings", {"source": topic, "target": queue}, 201)


def thresholds(api: Api, kind: str, name: str) -> tuple[int, int]:
    found = api.get(f"/{kind}s/{quoted(name)}")
    return found["flow_stop_count"], found["flow_resume_count"]


def depth(api: Api, kind: str, name: str) -> int:
    return int(api.get(f"/{kind}s/{quoted(name)}")["depth_msgs"])


def errors(broker: RunningBroker) -> list[str]:
    """What it said of those that survived with less than was set."""
    return [line for line in broker.lines if "survived" in line]


def publish(broker: RunningBroker, name: str, *bodies: str, **fields: Any) -> None:
    with connected(broker.url) as connection:
        send(connection.create_sender(name), *bodies, durable=True, **fields)


def test_a_queue_has_its_topic_s_settings_from_the_first_instant(again: Again) -> None:
    broker = again()
    api = Api(broker)
    create(api, "topic", "zt", flow_stop_count=1000)
    create(api, "queue", "q")
    bind(api, "zt", "q")
    api.patch("/queues/q", {"flow_resume_count": 500})
    publish(broker, "zt", "a", "b")
    broker = again()
    api = Api(broker)
    assert (thresholds(api, "queue", "q"), depth(api, "queue", "q")) == ((1000, 500), 2)
    assert errors(broker) == []
    publish(broker, "zt", "c")
    assert depth(api, "queue", "q") == 3


def test_a_duplicate_window_that_is_a_topic_s_survives(again: Again) -> None:
    broker = again()
    api = Api(broker)
    create(api, "topic", "t", duplicate_window=100)
    create(api, "queue", "q")
    create(api, "queue", "q/more", duplicate_window=100)
    bind(api, "t", "q")

    def resend(name: str, *ids: str) -> None:
        for each in ids:
            publish(broker, name, each, id=each)

    resend("t", *"abc")
    resend("q/more", "elsewhere")
    broker = again()
    resend("t", *"abc")
    assert depth(Api(broker), "queue", "q") == 3
    # Without a window all is forgotten, over a restart too.
    api = Api(broker)
    create(api, "queue", "w", durable=True, duplicate_window=100)
    resend("w", *"aab")
    api.patch("/queues/w", {"duplicate_window": 0})
    broker = again()
    Api(broker).patch("/queues/w", {"duplicate_window": 100})
    broker = again()
    resend("w", *"abb")
    assert depth(Api(broker), "queue", "w") == 4
    # An id that another queue took, whose name begins with this one's, is none of its own.
    resend("t", "elsewhere")
    assert depth(Api(broker), "queue", "q") == 4
    assert errors(broker) == []


def test_a_topic_of_a_policy_that_was_not_kept_is_a_topic_still(again: Again) -> None:
    broker = again()
    api = Api(broker)
    text = "policies: [{match: tt, kind: topic, durable: true}]"
    api.post("/policies/apply", {"text": text, "file": "p.yaml"})
    publish(broker, "tt", "a")
    for kill in (True, False):
        broker = again(kill=kill)
        api = Api(broker)
        assert api.get("/explain/tt")["kind"] == "topic"
        assert errors(broker) == []
        # It is no reason to refuse what is about others.
        api.post("/policies/apply", {"text": "policies: [{match: x, max_count: 5}]", "file": "x.yaml"})
        api.post("/reload", {})


def test_what_was_answered_is_there_again(again: Again) -> None:
    """Killed at the answer's first byte, as far as a client can."""
    for number in range(6):
        api = Api(again())
        create(api, "queue", f"q{number}")
    found = {each["name"] for each in Api(again()).get("/queues")["items"]}
    assert {f"q{number}" for number in range(6)} <= found


def test_a_setting_that_needs_a_policy_that_was_not_kept_is_left_out_and_told(again: Again) -> None:
    broker = again()
    api = Api(broker)
    wanted = {"text": 'policies: [{match: "w.>", flow_stop_count: 1000}]', "file": "p.yaml"}
    api.post("/policies/apply", wanted)
    create(api, "queue", "w.1", flow_resume_count=500)
    publish(broker, "w.1", "a", "b")
    for kill in (False, True):
        broker = again(kill=kill)
        api = Api(broker)
        (told,) = errors(broker)
        for part in ("ERROR", "'w.1'", "flow_resume_count 500 needs a flow_stop_count", "from argument"):
            assert part in told
        assert (thresholds(api, "queue", "w.1"), depth(api, "queue", "w.1")) == ((0, 0), 2)
    # Others' changes aren't refused for it, and it has what was set again as soon as that is possible.
    api.post("/policies/apply", {"text": "policies: [{match: x, max_count: 5}]", "file": "x.yaml"})
    api.post("/policies/apply", wanted)
    assert thresholds(api, "queue", "w.1") == (1000, 500)


def test_a_kind_that_the_files_contradict_stands_and_is_told(again: Again) -> None:
    broker = again()
    api = Api(broker)
    for kind, name in (("queue", "w"), ("topic", "t")):
        text = f"policies: [{{match: {name}, kind: {kind}, durable: true}}]"
        api.post("/policies/apply", {"text": text, "file": "p.yaml"})
    publish(broker, "w", "a")
    publish(broker, "t", "a")
    with connected(broker.url, "app") as connection:
        detach(connection.create_receiver("t", name="sub", options=LASTING, credit=0))
    publish(broker, "t", "b")
    policies = "policies:\n  - {match: w, kind: topic}\n  - {match: t, kind: queue}\n"
    broker = again(policies)
    api = Api(broker)
    told = "\n".join(errors(broker))
    assert "'w' is a queue and can't become another kind" in told
    assert "policies.yaml:2:16" in told
    assert "'t' is a topic" in told
    assert depth(api, "queue", "w") == 1
    assert depth(api, "subscription", "t/app.sub") == 1
    # It goes on so under other policies, until it is deleted.
    create(api, "topic", "x")
    bind(api, "x", "w")
    publish(broker, "x", "b")
    assert depth(api, "queue", "w") == 2
    api.delete("/topics/x")
    api.delete("/queues/w")
    publish(broker, "w", "c")
    assert api.get("/explain/w")["kind"] == "topic"


@pytest.mark.parametrize(
    ("policies", "config"),
    [
        ("policies:\n  - {match: S, kind: topic}\n", ""),
        ("", "auto_create: false\n"),
        ("policies:\n  - {match: S, kind: queue}\n", ""),
        ("policies:\n  - {match: S, max_count: 5, flow_stop_count: 4}\n", ""),
    ],
)
def test_a_subscription_survives_its_topic_s_settings(again: Again, policies: str, config: str) -> None:
    """The topic itself isn't durable, so that what it was declared with is gone."""
    more = '  - {match: "S/>", kind: subscription, flow_resume_count: 500}\n'
    broker = again("policies:\n" + more)
    api = Api(broker)
    create(api, "topic", "S", durable=False, flow_stop_count=1000)
    with connected(broker.url, "app") as connection:
        detach(connection.create_receiver("S", name="sub", options=LASTING, credit=0))
    assert thresholds(api, "subscription", "S/app.sub") == (1000, 500)
    publish(broker, "S", "a", "b")
    broker = again((policies or "policies:\n") + more, config)
    api = Api(broker)
    assert "flow_resume_count 500" in "\n".join(errors(broker))
    assert depth(api, "subscription", "S/app.sub") == 2
    publish(broker, "S", "c")
    with connected(broker.url, "app") as connection:
        receiver = connection.create_receiver("S", name="sub", options=LASTING, credit=10)
        assert take(receiver, 3) == ["a", "b", "c"]


def test_a_subscription_to_events_survives_a_broker_without_them(again: Again) -> None:
    broker = again()
    with connected(broker.url, "app") as connection:
        detach(connection.create_receiver("$sluice/events", name="sub", options=LASTING, credit=0))
    broker = again(config="events: {enabled: false}\n")
    assert "there is no topic '$sluice/events'" in "\n".join(errors(broker))
    names = [row["name"] for row in Api(broker).get("/subscriptions")["items"]]
    assert names == ["$sluice/events/app.sub"]
    broker = again()
    assert errors(broker) == []
    with connected(broker.url, "app") as connection:
        receiver = connection.create_receiver("$sluice/events", name="sub", options=LASTING, credit=10)
        assert receiver.receive(timeout=20).body


def test_a_queue_that_has_the_name_of_a_subscription_survives(again: Again) -> None:
    """Once it is there the subscription is called otherwise; before, it can't be made (test_names.py)."""
    broker = again()
    create(Api(broker), "queue", "t/app.sub")
    with connected(broker.url, "app") as connection:
        detach(connection.create_receiver("topic://t", name="sub", options=LASTING, credit=0))
    publish(broker, "t", "a", "b")
    publish(broker, "t/app.sub", "c")
    api = Api(again())
    (subscription,) = api.get("/subscriptions")["items"]
    assert (depth(api, "queue", "t/app.sub"), subscription["depth_msgs"]) == (1, 2)
    assert subscription["name"] != "t/app.sub"


def test_a_long_filter_survives(again: Again) -> None:
    long = "n = 7 OR n = '" + "x" * 20_000 + "'"
    broker = again(config="limits: {max_selector_length: 100000}\n")
    with connected(broker.url, "app") as connection:
        asks = type(LASTING)(durable=True, expiry=LASTING.expiry, filters=selector(long))
        detach(connection.create_receiver("topic://t", name="sub", options=asks, credit=0))
    broker = again()
    publish(broker, "t", "no")
    publish(broker, "t", "yes", properties={"n": 7})
    assert depth(Api(broker), "subscription", "t/app.sub") == 1


def test_refusals_leave_a_running_broker_as_it_was(again: Again) -> None:
    policies = (
        "policies:\n  - {match: S, kind: topic, flow_stop_count: 1000, flow_resume_count: 700}\n"
        '  - {match: "S/>", kind: subscription, flow_resume_count: 500}\n'
        "  - {match: bq, max_count: 10000, flow_resume_count: 5000}\n"
    )
    broker = again(policies)
    api = Api(broker)
    create(api, "topic", "S")
    with connected(broker.url, "app") as connection:
        detach(connection.create_receiver("S", name="sub", options=LASTING, credit=0))
    wanted = {"flow_stop_count": 100, "flow_resume_count": 50}
    api.patch("/topics/S", wanted, 400)
    api.post("/effect", {"name": "S", "arguments": wanted}, 400)
    assert thresholds(api, "topic", "S") == (1000, 700)
    create(api, "topic", "T", flow_stop_count=1000)
    create(api, "queue", "Q")
    bind(api, "T", "Q")
    api.patch("/queues/Q", {"flow_resume_count": 500})
    api.delete("/topics/T", status=400)
    api.delete("/bindings", {"source": "T", "target": "Q"}, 400)
    create(api, "topic", "BT", durable=False, flow_stop_count=100)
    api.post("/bindings", {"source": "BT", "target": "bq"}, 400)
    assert api.call("GET", "/queues/bq").status == 404

    def seen() -> str:
        return json.dumps([api.get("/bindings")["items"], thresholds(api, "queue", "Q")])

    before = seen()
    api = Api(again(policies))
    assert seen() == before
    api.get("/topics/T")
