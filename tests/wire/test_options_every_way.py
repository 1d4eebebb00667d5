"""Every option of the kinds of queue, from policies, the command line, the HTTP API and `$management` alike.

Each way takes the same values at creation and at runtime, takes them back, and refuses a wrong one with a
reason that names the option, and the line in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.cli.main import main
from broker.client.link import Connection
from broker.client.request import Management
from broker.config.limits import Limits
from broker.config.node import NodeSettings
from broker.errors import SluiceError
from tests.wire.apiclient import Api
from tests.wire.conftest import RunningBroker, StartBroker
from tests.wire.seeing import await_number, queue_of

pytestmark = pytest.mark.wire

# Option -> a value and as what it is shown, another one for the change, and a wrong one with its reason.
OPTIONS: dict[str, tuple[tuple[object, object], tuple[object, object], tuple[object, str]]] = {
    "priority": (("strict", "strict"), ("fair", "fair"), ("first", "'none', 'strict' or 'fair'")),
    "priority_reserve": (("10%", 10), ("90%", 90), ("91%", "90")),
    "priority_reserve_from": ((7, 7), (1, 1), (10, "at most 9")),
    "message_groups": (("sticky", "sticky"), ("shared", "shared"), ("glued", "'none', 'sticky' or 'shared'")),
    "group_key": (("customer", "customer"), ("shop", "shop"), ("x" * 256, "name of an application property")),
    "group_first_key": (
        ("JMSXGroupFirstForConsumer", "JMSXGroupFirstForConsumer"),
        ("first", "first"),
        ("x" * 256, "name of an application property"),
    ),
    "group_rebalance": ((True, True), (False, False), ("some", "true or false")),
    "group_max_idle": ((5, 5), (100, 100), (0, "at least 1")),
    "consumer_timeout": (("30 s", 30_000), ("2m", 120_000), ("soon", "duration")),
    "redelivery_delay": (("500 ms", 500), ("1h", 3_600_000), ("later", "duration")),
    "redelivery_multiplier": ((1.5, 1.5), (2.0, 2.0), (0.5, "from 1 to 1000")),
    "max_redelivery_delay": (("10 s", 10_000), ("1m", 60_000), ("-1 s", "duration")),
    "redelivery_jitter": (("20%", 20), ("100%", 100), ("101%", "100")),
}
# Those of `limits`, with a value, as what it is kept, and a wrong one.
LIMITS: dict[str, tuple[object, object, object]] = {
    "max_transactions": (7, 7, 0),
    "max_transaction_size": ("2 MB", 2 << 20, "much"),
    "max_transactions_per_user": (9, 9, -1),
    "max_transaction_size_per_user": ("3 MB", 3 << 20, "much"),
    "transaction_timeout": ("20 s", 20_000, "soon"),
}
# These are older than the table, and each has tests where its subject is. A new setting has a row above.
TESTED_ELSEWHERE = {
    *("kind", "durable", "max_count", "max_size", "max_message_size", "memory_limit", "overflow"),
    *("flow_control", "flow_stop_count", "flow_resume_count", "flow_stop_size", "flow_resume_size"),
    *("enforce_flow", "producer_window", "initial_credit", "byte_reservation", "when_full", "reject_after"),
    *("consumer_flow_limit", "consumer_flow_min", "consumer_flow_threshold", "consumers", "dispatch"),
    *("slow_consumer_rate", "slow_consumer_for", "slow_consumer_action", "pending_message_limit"),
    *("dead_letter_address", "dead_letter_expired", "max_delivery_count", "duplicate_window"),
    *("duplicate_window_count", "message_ttl", "max_ttl", "expire_after", "non_destructive"),
    *("last_value_key", "last_value_position", "queue_type", "max_age", "partitions"),
    "cell",
}


def written(value: object) -> str:
    """As a file or a command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Way:
    """One way to set an option of a queue; what it refuses is a text, what it takes is ''."""

    def __init__(self, broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self.capsys = capsys

    def create(self, name: str, option: str, value: object) -> str:
        raise NotImplementedError

    def change(self, name: str, option: str, value: object) -> str:
        """None takes the option back."""
        raise NotImplementedError


class PolicyFile(Way):
    """Policies in the broker's file, which is read again."""

    def create(self, name: str, option: str, value: object) -> str:
        refusal = self.change(name, option, value)
        if not refusal:
            Api(self.broker).call("POST", "/queues", {"name": name})
        return refusal

    def change(self, name: str, option: str, value: object) -> str:
        line = "" if value is None else f"    {option}: {written(value)}\n"
        self.broker.policy_file.write_text(f'policies:\n  - match: "{name}"\n{line}')
        answer = Api(self.broker).call("POST", "/reload", {})
        return "" if answer.status < 300 else answer.error


class CommandLine(Way):
    """`sluice config`."""

    def create(self, name: str, option: str, value: object) -> str:
        return self.run("add", name, option, written(value))

    def change(self, name: str, option: str, value: object) -> str:
        return self.run("set", name, option, "" if value is None else written(value))

    def run(self, verb: str, name: str, option: str, value: str) -> str:
        words = ["config", "-b", self.broker.url, verb, "queue", name, "--argument", f"{option}={value}"]
        self.capsys.readouterr()
        status = main(words)
        return "" if status == 0 else self.capsys.readouterr().err


class Http(Way):
    def create(self, name: str, option: str, value: object) -> str:
        return self.ask("POST", "/queues", {"name": name, "arguments": {option: value}})

    def change(self, name: str, option: str, value: object) -> str:
        return self.ask("PATCH", f"/queues/{name}", {option: value})

    def ask(self, method: str, path: str, body: object) -> str:
        answer = Api(self.broker).call(method, path, body)
        return "" if answer.status < 300 else answer.error


class ManagementNode(Way):
    def create(self, name: str, option: str, value: object) -> str:
        return self.ask("CREATE", name, option, value)

    def change(self, name: str, option: str, value: object) -> str:
        return self.ask("UPDATE", name, option, value)

    def ask(self, operation: str, name: str, option: str, value: object) -> str:
        with Management(self.broker.url) as management:
            try:
                management.call(operation, "org.sluice.queue", name, {option: value})
            except SluiceError as refusal:
                return str(refusal)
        return ""


WAYS = (PolicyFile, CommandLine, Http, ManagementNode)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path_factory.mktemp("options"), "", "", ())
    broker.settle()
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log


@pytest.fixture(params=WAYS, ids=lambda kind: kind.__name__)
def way(request: pytest.FixtureRequest, shared: RunningBroker, capsys: pytest.CaptureFixture[str]) -> Way:
    kind: type[Way] = request.param
    return kind(shared, capsys)


def shown(way: Way, name: str, option: str) -> object:
    row = queue_of(way.broker, name)
    return row[option] if option in row else row[f"{option}_ms"]


def default_of(option: str) -> object:
    fields = NodeSettings.__dataclass_fields__
    return (fields.get(option) or fields[f"{option}_ms"]).default


def test_the_table_has_every_option_but_those_with_tests_of_their_own() -> None:
    known = {name.removesuffix("_ms") for name in NodeSettings.__dataclass_fields__}
    assert known - TESTED_ELSEWHERE == set(OPTIONS)
    assert {name.removesuffix("_ms") for name in Limits.__dataclass_fields__ if "transaction" in name} == set(
        LIMITS
    )


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_set_changed_and_taken_back(way: Way, option: str) -> None:
    (first, as_shown), (other, other_shown), _ = OPTIONS[option]
    name = f"{option}.{type(way).__name__}"
    assert way.create(name, option, first) == ""
    assert shown(way, name, option) == as_shown
    assert way.change(name, option, other) == ""
    assert shown(way, name, option) == other_shown
    assert way.change(name, option, None) == ""
    assert shown(way, name, option) == default_of(option)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_wrong_value_is_refused_with_its_place(way: Way, option: str) -> None:
    (good, as_shown), _, (wrong, reason) = OPTIONS[option]
    name = f"wrong.{option}.{type(way).__name__}"
    fault = way.create(name, option, wrong)
    assert option in fault
    assert reason in fault, fault
    if isinstance(way, PolicyFile):
        assert f"policies.yaml:3:{len(option) + 7}: " in fault, fault
    else:
        assert Api(way.broker).call("GET", f"/queues/{name}").status == 404
    assert way.create(name, option, good) == ""
    fault = way.change(name, option, wrong)
    assert option in fault
    assert reason in fault, fault
    assert shown(way, name, option) == as_shown, "the value before holds on"
    misspelt = way.change(name, option + "s", good)
    assert f"did you mean '{option}'" in misspelt, misspelt


@pytest.mark.parametrize(("option", "before", "after"), [("message_groups", "sticky", "none")])
def test_what_a_consumer_relies_on_stays_as_it_is(way: Way, option: str, before: str, after: str) -> None:
    name = f"relied.{type(way).__name__}"
    assert way.create(name, option, before) == ""
    with Connection(way.broker.url) as connection:
        connection.receiver(name)
        await_number(way.broker, name, "consumers", 1)
        refusal = way.change(name, option, after)
        if not isinstance(way, PolicyFile):
            assert "has consumers" in refusal, refusal
        assert shown(way, name, option) == before
    await_number(way.broker, name, "consumers", 0)
    if not isinstance(way, PolicyFile):
        assert way.change(name, option, after) == ""
        assert shown(way, name, option) == after


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_transactions_is_refused_with_its_place(
    limit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, _, wrong = LIMITS[limit]
    config = tmp_path / "broker.yaml"
    words = ["serve", "--check", "--config", str(config), "--data", str(tmp_path)]
    config.write_text(f"limits:\n  {limit}: {good}\n")
    assert main(words) == 0, capsys.readouterr().err
    config.write_text(f"limits:\n  {limit}: {wrong}\n")
    assert main(words) != 0
    assert f"broker.yaml:2:{len(limit) + 5}: {limit}:" in capsys.readouterr().err
    config.write_text("{}\n")
    monkeypatch.setenv(f"SLUICE_LIMITS_{limit.upper()}", str(wrong))
    assert main(words) != 0
    assert f"SLUICE_LIMITS_{limit.upper()}" in capsys.readouterr().err
    monkeypatch.setenv(f"SLUICE_LIMITS_{limit.upper()}", str(good))
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.parametrize("ask", ["command line", "HTTP"])
def test_limits_of_transactions_are_read_again(start_broker: StartBroker, ask: str) -> None:
    """They are the broker's, and their file is the one place for them; each face can have it read again."""
    broker = start_broker("limits: {max_transactions_per_user: 5}\n")
    again: Callable[[], object] = {
        "command line": lambda: main(["config", "-b", broker.url, "apply"]),
        "HTTP": lambda: Api(broker).call("POST", "/reload", {}).body,
    }[ask]
    broker.config_file.write_text("limits: {max_transactions_per_user: none}\n")
    refusal = again()
    assert refusal != 0
    if ask == "HTTP":
        assert "broker.yaml:1:" in str(refusal)
    broker.config_file.write_text("limits: {max_transactions_per_user: 6}\n")
    assert again() in (0, {"changed": []})
