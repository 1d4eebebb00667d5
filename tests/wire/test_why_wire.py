"""Each producer without credit and each consumer that isn't served has one sentence, which is the reason."""

from __future__ import annotations

import json
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from proton import Message
from proton.reactor import Selector
from proton.utils import BlockingConnection

from broker.client.request import Management
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    ACCEPTED,
    ATTACH,
    BODY,
    DISPOSITION,
    FLOW,
    RECEIVER,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    RawPeer,
    Symbol,
    UByte,
    performative,
    transfer,
)
from tests.wire.seeing import number_of, update
from tests.wire.test_cli_wire import sluice

pytestmark = [pytest.mark.wire, pytest.mark.flow]

POLICIES = """policies:
  - {match: count, flow_stop_count: 5, flow_resume_count: 3}
  - {match: bytes, flow_stop_size: 200, flow_resume_size: 100, byte_reservation: strict, max_message_size: 64}
  - {match: small, flow_stop_count: 3}
  - {match: news, kind: topic, flow_stop_count: 5}
  - {match: single, consumers: single_active, flow_stop_count: 20}
  - {match: reject, when_full: reject, flow_stop_count: 5}
  - {match: after, when_full: reject_after, reject_after: 60s, flow_stop_count: 5}
  - {match: paged, overflow: page, memory_limit: 64KB, flow_stop_count: 50}
  - {match: ring, overflow: ring, max_count: 10}
  - {match: durable, durable: true, flow_stop_count: 10}
  - {match: window, consumer_flow_limit: 3, flow_stop_count: 30}
  - {match: free, flow_control: false}
"""
NODES = (
    "count",
    "bytes",
    "small",
    "news",
    "single",
    "reject",
    "after",
    "paged",
    "ring",
    "durable",
    "window",
    "free",
)
CONFIG = "flow:\n  connection_flow_limit: 8\n  connection_flow_limit_enabled: true\n"
# Causes of a moment, or of nothing: no link is left with one of these.
FALLBACKS = {"turn", "dispatch", "nothing", ""}

Row = dict[str, object]
# What grows with each credit a link had and used or gave back, and with each message a consumer got.
HISTORY = ("used", "withdrawn", "delivered", "settled")
# A message of 61 bytes.
SIXTY = b"\x00\x53\x77\xa1\x38" + b"x" * 56
ATTRIBUTES = [
    *("identity", "role", "node", "link", "credit", "parked", "window", "shut", "connection_shut"),
    *HISTORY,
]


class Seer:
    """What a broker shows of its links and says of them."""

    def __init__(self, management: Management) -> None:
        self.management = management

    def links(self) -> dict[str, Row]:
        return {str(row["identity"]): row for row in self._rows("link", ATTRIBUTES)}

    def ready(self) -> dict[str, int]:
        rows = [row for kind in ("queue", "subscription") for row in self._rows(kind, ["name", "ready_msgs"])]
        return {str(row["name"]): int(str(row["ready_msgs"])) for row in rows}

    def names(self, kind: str) -> list[str]:
        return [
            str(row["name"]) for row in self._rows(kind, ["name"]) if not str(row["name"]).startswith("$")
        ]

    def own(self) -> set[str]:
        """The links of management's own."""
        return {name for name, row in self.links().items() if str(row["node"]).startswith("$temporary/")}

    def why(self, **arguments: object) -> list[Row]:
        body = self.management.call("why", "org.sluice.broker", body=arguments).body
        assert isinstance(body, dict)
        answers: list[Row] = body["answers"]
        return answers

    def _rows(self, kind: str, names: list[str]) -> list[Row]:
        body = self.management.call("QUERY", f"org.sluice.{kind}", body={"attributeNames": names}).body
        assert isinstance(body, dict)
        return [dict(zip(names, row, strict=True)) for row in body["results"]]

    def waiting(self) -> dict[str, list[object]]:
        """Producers that may not send, and consumers at whose node messages wait, with their history."""
        links, ready = self.links(), self.ready()
        producers = [
            name
            for name, row in links.items()
            if row["role"] == "producer" and (row["parked"] or (row["credit"] == 0 and row["window"]))
        ]
        consumers = [
            name
            for name, row in links.items()
            if row["role"] == "consumer"
            and ready.get(str(row["node"]), 0)
            and "browse" not in str(row["link"])
        ]
        return {name: [links[name][each] for each in HISTORY] for name in (*producers, *consumers)}

    def explained(self) -> list[Row]:
        """All answers, once whatever waits before and after, and had nothing in between, has exactly one.

        Links that lie idle lend each other credit all the time, so that there is no instant for all of them.
        """
        found: list[Row] = []
        problem = ""

        def is_complete() -> bool:
            nonlocal found, problem
            before = self.waiting()
            found = self.why()
            after = self.waiting()
            counts = Counter(str(answer["link_id"]) for answer in found)
            expected = {name for name, history in before.items() if after.get(name) == history}
            missing = expected - counts.keys()
            double = [name for name, count in counts.items() if count > 1]
            vague = [answer["sentence"] for answer in found if answer["cause"] in FALLBACKS]
            links = self.links()
            problem = f"missing {[links.get(name) for name in missing]}, double {double}, vague {vague}"
            return not missing and not double and not vague

        deadline = time.monotonic() + 30
        while not is_complete():
            assert time.monotonic() < deadline, problem
        return found


class Client(RawPeer):
    """A connection with one link, that only does what it is told to."""

    def __init__(self, broker: RunningBroker, name: str) -> None:
        super().__init__(broker.port)
        self.name = name
        self.sent = 0
        self.settled = 0
        self.open(container=name).begin()

    def produce_to(self, address: str | None, mode: int = 2) -> None:
        self.attach_sender(address, self.name, mode=mode)

    def consume(self, address: str, credit: int, *, copy: bool = False) -> None:
        source = Described(
            SOURCE, [address, None, None, None, None, None, Symbol("copy")] if copy else [address]
        )
        modes = (UByte(2), UByte(0))
        self.send(performative(ATTACH, self.name, 1, RECEIVER, *modes, source, Described(TARGET)))
        self._attached(1)
        if credit:
            self.give_credit(credit)

    def listen(self, seconds: float = 0.01) -> None:
        while self._read_frame(time.monotonic() + seconds) is not None:
            pass

    def produce(self, most: int, payload: bytes = BODY) -> None:
        self.listen()
        for _ in range(min(most, self.may_send() - self.sent)):
            self.send(transfer(self.sent, payload))
            self.sent += 1

    def settle(self, most: int) -> None:
        self.listen()
        taken = sum(frame.code == TRANSFER for frame in self.log)
        for _ in range(min(most, taken - self.settled)):
            self.send(performative(DISPOSITION, True, self.settled, self.settled, True, Described(ACCEPTED)))
            self.settled += 1


def addressed(to: str) -> bytes:
    """A message for the anonymous relay."""
    name = b"\xa1" + bytes((len(to),)) + to.encode()
    return b"\x00\x53\x73\xc0" + bytes((len(name) + 3, 3)) + b"\x40\x40" + name + BODY


class Mix:
    """Clients and operators that do this and that."""

    def __init__(self, broker: RunningBroker, seer: Seer, dice: random.Random, stack: ExitStack) -> None:
        self.broker = broker
        self.seer = seer
        self.dice = dice
        self.stack = stack
        self.producers: list[Client] = []
        self.relays: list[Client] = []
        self.consumers: list[Client] = []
        self.number = 0

    def step(self) -> None:
        verbs: list[tuple[Callable[[], None], int]] = [
            (self.new_producer, 4),
            (self.new_consumer, 3),
            (self.new_relay, 1),
            (self.produce, 12),
            (self.relay, 3),
            (self.settle, 6),
            (self.leave, 1),
            (self.hold, 1),
            (self.change, 1),
        ]
        self.dice.choices([verb for verb, _ in verbs], [weight for _, weight in verbs])[0]()

    def client(self, kind: str) -> Client:
        self.number += 1
        return self.stack.enter_context(Client(self.broker, f"{kind}-{self.number}"))

    def new_producer(self) -> None:
        client = self.client("producer")
        client.produce_to(self.dice.choice(NODES), self.dice.choice((1, 2)))
        self.producers.append(client)

    def new_relay(self) -> None:
        client = self.client("relay")
        client.produce_to(None)
        self.relays.append(client)

    def new_consumer(self) -> None:
        copy = self.dice.random() < 0.15
        client = self.client("browse" if copy else "consumer")
        client.consume(self.dice.choice(NODES), self.dice.choice((0, 1, 6, 100, 100)), copy=copy)
        self.consumers.append(client)

    def produce(self) -> None:
        if self.producers:
            self.dice.choice(self.producers).produce(self.dice.choice((1, 5, 50)))

    def relay(self) -> None:
        if self.relays:
            self.dice.choice(self.relays).produce(3, addressed(self.dice.choice(NODES)))

    def settle(self) -> None:
        if self.consumers:
            self.dice.choice(self.consumers).settle(self.dice.choice((1, 2, 10)))

    def leave(self) -> None:
        group = self.dice.choice((self.producers, self.consumers, self.relays))
        if group:
            group.pop(self.dice.randrange(len(group))).close()

    def hold(self) -> None:
        verb = self.dice.choice(("stop-producers", "start-producers", "start-producers"))
        target = self.dice.choice((*NODES, "*"))
        self.seer.management.call(verb, "org.sluice.broker", body={"target": target})

    def change(self) -> None:
        stop = self.dice.choice((2, 5, 20))
        update(
            self.broker, self.dice.choice(("count", "small")), flow_stop_count=stop, flow_resume_count=stop
        )


@pytest.mark.parametrize(("seed", "memory"), [(1, "64MB"), (2, "64MB"), (3, "16KB")])
def test_everybody_who_waits_is_told_why(start_broker: StartBroker, seed: int, memory: str) -> None:
    broker = start_broker(CONFIG, POLICIES, ("--memory-limit", memory))
    causes: Counter[str] = Counter()
    with Management(broker.url) as management, ExitStack() as stack:
        seer = Seer(management)
        for node in ("count", "small"):
            management.call("CREATE", "org.sluice.queue", node, {})
        mix = Mix(broker, seer, random.Random(seed), stack)
        for step in range(180):
            mix.step()
            if step % 15 == 14:
                for answer in seer.explained():
                    causes[str(answer["cause"])] += 1
                    assert str(answer["node"]) in str(answer["sentence"])
    # It was a mix: thresholds, operators and clients that give no credit at least.
    assert len(causes) >= 4, causes


# --- each reason, told alike everywhere


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("why"), CONFIG, POLICIES, ())
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture
def stage(theatre: RunningBroker) -> Iterator[RunningBroker]:
    """One broker for all: what a test leaves is taken away before the next."""
    yield theatre
    with Management(theatre.url) as management:
        seer = Seer(management)
        management.call("start-producers", "org.sluice.broker", body={"target": ">"})
        wait_until(lambda: seer.links().keys() == seer.own(), 10, "the clients to be gone")
        for kind in ("queue", "topic"):
            for name in seer.names(kind):
                management.call("DELETE", f"org.sluice.{kind}", name)


def told(broker: RunningBroker, address: str, subject: str) -> Row:
    """The one answer for a kind of link at an address: the same from AMQP, HTTP and the command line."""
    with Management(broker.url) as management:
        seer = Seer(management)
        wait_until(lambda: any(each["subject"] == subject for each in seer.why(address=address)), 10, subject)
        [answer] = [each for each in seer.why(address=address) if each["subject"] == subject]
    [over_http] = [each for each in fetched(broker, address) if each["subject"] == subject]
    assert over_http["cause"] == answer["cause"]
    lines = sluice(broker, "why", address).splitlines()
    assert any(str(answer["frees"]) in line for line in lines)
    return answer


def fetched(broker: RunningBroker, address: str = "") -> list[Row]:
    path = f"/api/v1/why/{address}" if address else "/api/v1/why"
    url = f"http://127.0.0.1:{broker.http_port}{path}"
    with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
        found: list[Row] = json.loads(answer.read())["answers"]
        return found


def full(broker: RunningBroker, stack: ExitStack, address: str, name: str = "p") -> Client:
    client = stack.enter_context(Client(broker, name))
    client.produce_to(address)
    client.await_credit()
    for _ in range(10):
        client.produce(100, SIXTY)
        # Who asks behind them is answered behind them: what more credit there is has come by then.
        fetched(broker)
    return client


@pytest.mark.parametrize(
    ("address", "cause"),
    [("count", "flow_stop_count"), ("bytes", "flow_stop_size"), ("paged", "flow_stop_count")],
)
def test_thresholds(stage: RunningBroker, address: str, cause: str) -> None:
    with ExitStack() as stack:
        full(stage, stack, address)
        answer = told(stage, address, "producer")
        assert answer["cause"] == cause
        assert answer["container"] == "p"
        assert isinstance(answer["blocked_s"], float)


def test_a_subscription_stops_its_topic(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        stack.enter_context(Client(stage, "subscriber")).consume("news", 0)
        full(stage, stack, "news")
        answer = told(stage, "news", "producer")
        assert "subscription '" in str(answer["sentence"])
        assert answer["cause"] == "flow_stop_count"


def test_an_operator(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        full(stage, stack, "count")
        sluice(stage, "producers", "stop", "count")
        answer = told(stage, "count", "producer")
        assert answer["cause"] == "operator"
        assert "producers stopped for 'count'" in str(answer["sentence"])


def test_a_relay_waits_at_several_nodes_and_has_one_sentence(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        relay = stack.enter_context(Client(stage, "relay"))
        relay.produce_to(None)
        relay.await_credit()
        for node in ("count", "small"):
            relay.produce(10, addressed(node))
        for node in ("count", "small"):
            wait_until(lambda node=node: number_of(stage, node, "parked_msgs") > 0, 10, "parked ones")  # type: ignore[misc]
        answers = [each for each in fetched(stage, "relay") if each["subject"] == "producer"]
        assert len(answers) == 1
        assert "unsettled messages parked" in str(answers[0]["sentence"])
        assert "It waits at 1 more nodes" in str(answers[0]["sentence"])


def test_a_message_that_will_be_rejected_after_a_while(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        full(stage, stack, "after")
        answer = told(stage, "after", "producer")
        assert str(answer["frees"]).endswith(", or its messages are rejected 60.0 s after they came")


def test_a_window_and_a_connections_limit(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        full(stage, stack, "window")
        stack.enter_context(Client(stage, "windowed")).consume("window", 100)
        assert told(stage, "window", "consumer")["cause"] == "consumer_flow_limit"
        full(stage, stack, "free", "q")
        stack.enter_context(Client(stage, "limited")).consume("free", 100)
        assert told(stage, "free", "consumer")["cause"] == "connection_flow_limit"


def test_a_client_that_gives_no_credit(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        full(stage, stack, "count")
        stack.enter_context(Client(stage, "dry")).consume("count", 0)
        assert told(stage, "count", "consumer")["cause"] == "credit"


def test_a_standby_of_a_single_active_consumer(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        stack.enter_context(Client(stage, "active")).consume("single", 1)
        stack.enter_context(Client(stage, "standby")).consume("single", 1)
        full(stage, stack, "single")
        answers = {each["container"]: each for each in fetched(stage, "single")}
        assert answers["standby"]["cause"] == "single_active"
        assert "which is 'active' of 'active'" in str(answers["standby"]["sentence"])
        assert answers["active"]["cause"] == "credit"


def test_a_selector_that_wants_nothing(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        connection = BlockingConnection(stage.url, timeout=10)
        stack.callback(connection.close)
        connection.create_receiver("count", credit=10, options=Selector("colour = 'red'"))
        connection.create_sender("count").send(Message(properties={"colour": "blue"}))
        assert told(stage, "count", "consumer")["cause"] == "selector"


def test_a_client_that_does_not_read(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        input_stopped = stack.enter_context(Client(stage, "deaf"))
        input_stopped.consume("free", 60_000)
        connection = BlockingConnection(stage.url, timeout=20)
        stack.callback(connection.close)
        sender = connection.create_sender("free")
        update(stage, "free", consumer_flow_limit=0)
        input_stopped.settle(0)

        def is_full() -> bool:
            return any(each["cause"] == "socket" for each in fetched(stage, "free"))

        for _ in range(40):
            sender.send(Message(body=b"x" * 900_000), timeout=20)
            # One that was full for a moment has been written to by the second look.
            if is_full() and is_full():
                break
            input_stopped.send(performative(DISPOSITION, True, 0, 100, True, Described(ACCEPTED)))
        assert told(stage, "free", "consumer")["cause"] == "socket"


def test_a_link_for_which_there_is_nothing(stage: RunningBroker) -> None:
    with ExitStack() as stack:
        idle = stack.enter_context(Client(stage, "idle"))
        idle.consume("count", 10)

        def cause(name: str) -> object:
            [answer] = fetched(stage, name)
            return answer["cause"]

        def goes_on() -> bool:
            idle.settle(10)
            return cause(producer.name) == "nothing"

        wait_until(lambda: cause("idle") == "empty", 10, "its credit to be heard of")
        producer = full(stage, stack, "count")
        wait_until(lambda: cause("idle") == "held", 10, "the messages to be with it")
        wait_until(goes_on, 20, "the producer to go on")


def test_a_broker_that_is_shutting_down(start_broker: StartBroker) -> None:
    # Time enough to be asked; it ends with the last client.
    broker = start_broker(CONFIG + "limits:\n  shutdown_timeout: 20s\n", POLICIES)
    with ExitStack() as stack, Management(broker.url) as management:
        seer = Seer(management)
        full(broker, stack, "count")
        stack.enter_context(Client(broker, "holder")).consume("count", 2)
        wait_until(lambda: any(row["link"] == "holder" for row in seer.links().values()), 10, "the consumer")
        broker.process.terminate()
        broker.wait_for_log("stopping")
        assert {each["cause"] for each in fetched(broker, "count")} == {"shutdown"}


def test_nobody_of_that_name(stage: RunningBroker) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        fetched(stage, "nobody")
    assert refusal.value.code == 404
    assert "nobody" in json.loads(refusal.value.read())["error"]
    assert sluice(stage, "why") == "No producer waits and no consumer is held up.\n"


def test_a_forecast_is_compared_with_what_comes_true(stage: RunningBroker) -> None:
    """A consumer settles one message every 20 ms or so: forecasts are made, measured, and about right.

    Lately right is enough: while the machine does something else, nobody settles as was foreseen.
    """
    with ExitStack() as stack:
        producer = full(stage, stack, "count")
        update(stage, "count", flow_stop_count=60, flow_resume_count=10)
        taker = stack.enter_context(Client(stage, "taker"))
        taker.consume("count", 0)
        answer: Row = {}

        def is_about_right() -> bool:
            # Who is told of no time just now is told nothing of earlier ones either.
            told = answer.get("eta_error") is not None and " % lately)" in str(answer["sentence"])
            return told and float(str(answer["eta_error"])) < 0.6

        deadline = time.monotonic() + 60
        while not is_about_right():
            assert time.monotonic() < deadline, answer
            producer.produce(100)
            # Eight under way at any time.
            taker.send(performative(FLOW, 0, 10_000, 0, 10_000, 1, taker.settled, 8))
            taker.settle(1)
            for each in fetched(stage, "count"):
                answer = each if each["subject"] == "producer" else answer
            time.sleep(0.02)
