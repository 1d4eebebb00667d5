"""The management verbs without a broker: what they ask for, what they print, how they exit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import broker.client.request
from broker.cli import main as cli
from broker.client.request import Response
from broker.errors import ConflictError, SluiceError

Call = tuple[str, str | None, str | None, object]


class FakeBroker:
    """Answers from a table of canned bodies and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.entities: dict[str, list[dict[str, object]]] = {}
        self.answers: dict[str, object] = {}
        self.fault: Exception | None = None
        self.page = 1000

    def __call__(self, url: str) -> FakeBroker:
        return self

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def others(self) -> list[FakeBroker]:
        return []

    def call_each(
        self, operation: str, entity: str, body: Any = None
    ) -> tuple[dict[int, Response], dict[int, SluiceError]]:
        return {0: self.call(operation, entity, body=body)}, {}

    def call(
        self,
        operation: str,
        type: str | None = None,  # noqa: A002 - as the client has it
        name: str | None = None,
        attributes: Mapping[str, object] | None = None,
        body: Any = None,
        **properties: Any,
    ) -> Response:
        self.calls.append((operation, type, name, attributes if attributes is not None else body))
        if self.fault is not None:
            raise self.fault
        if operation == "QUERY":
            total = len(self.entities.get(str(type).removeprefix("org.sluice."), []))
            page = self._page(str(type), body["attributeNames"], properties["offset"])
            return Response(200, "OK", page, total)
        return Response(200, "OK", self.answers.get(operation, {}))

    def _page(self, type_: str, names: list[str], offset: int) -> dict[str, object]:
        found = self.entities.get(type_.removeprefix("org.sluice."), [])
        results = [[row.get(name) for name in names] for row in found[offset : offset + self.page]]
        return {"attributeNames": names, "results": results}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    found = FakeBroker()
    monkeypatch.setattr(broker.client.request, "Management", found)
    return found


# --- config


def test_qpid_configs_flags_become_settings(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    flags = (
        "--durable --max-queue-count 1000 --max-queue-size 10MB --limit-policy ring --flow-stop-size 8MB"
        " --flow-resume-size 7MB --flow-stop-count 900 --flow-resume-count 500"
        " --argument consumer_flow_limit=10"
    )
    assert cli.main(["config", "add", "queue", "orders", *flags.split()]) == 0
    assert fake.calls == [
        (
            "CREATE",
            "org.sluice.queue",
            "orders",
            {
                "durable": True,
                "max_count": "1000",
                "max_size": "10MB",
                "qpid.policy_type": "ring",
                "flow_stop_size": "8MB",
                "flow_resume_size": "7MB",
                "flow_stop_count": "900",
                "flow_resume_count": "500",
                "consumer_flow_limit": "10",
            },
        )
    ]
    assert capsys.readouterr().out == "created queue orders\n"


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("add topic news", ("CREATE", "org.sluice.topic", "news", {})),
        ("set queue q --flow-stop-count 5", ("UPDATE", "org.sluice.queue", "q", {"flow_stop_count": "5"})),
        ("set queue q --argument dispatch=", ("UPDATE", "org.sluice.queue", "q", {"dispatch": None})),
        ("add queue q --argument flow_control=", ("CREATE", "org.sluice.queue", "q", {"flow_control": ""})),
        ("del topic news", ("DELETE", "org.sluice.topic", "news", {})),
        (
            "bind news orders",
            ("CREATE", "org.sluice.binding", "news/orders", {"source": "news", "target": "orders"}),
        ),
        (
            "unbind news orders",
            ("DELETE", "org.sluice.binding", "news/orders", {"source": "news", "target": "orders"}),
        ),
        ("unbind x b/c", ("DELETE", "org.sluice.binding", "x/b/c", {"source": "x", "target": "b/c"})),
    ],
)
def test_each_command_asks_for_one_change(fake: FakeBroker, words: str, call: Call) -> None:
    """What is there before, so that it can tell what it created, is asked besides."""
    assert cli.main(["config", *words.split()]) == 0
    assert [each for each in fake.calls if each[0] != "explain"] == [call]


@pytest.mark.parametrize(
    "words",
    [
        "add",
        "add queue",
        "add bridge x",
        "add queue q --limit-policy lifo",
        "add queue q --argument novalue",
        "add queue q --flow-stop-count 5 --argument flow_stop_count=6",
        "set queue q",
        "nonsense",
        "apply /no/such/file",
    ],
)
def test_a_line_that_makes_no_sense_exits_2_and_asks_nothing(
    fake: FakeBroker, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["config", *words.split()]) == 2
    assert fake.calls == []
    assert capsys.readouterr().err


def test_a_refusal_exits_1_with_the_brokers_reason(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fault = ConflictError("'orders' exists already")
    assert cli.main(["config", "add", "queue", "orders"]) == 1
    assert capsys.readouterr().err == "sluice config: 'orders' exists already\n"


def test_a_listing_reads_every_page_and_filters(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    fake.entities["queue"] = [
        {"name": name, "kind": "queue"} for name in ("$own", *(f"q{n}" for n in range(7)))
    ]
    fake.page = 3
    assert cli.main(["config", "queues", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [f"q{n}" for n in range(7)]
    assert len(fake.calls) == 3
    assert cli.main(["config", "list", "q[23]"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["q2", "q3"]


def test_the_broker_may_be_named_before_or_after_the_command() -> None:
    from argparse import ArgumentParser

    from broker.cli.verbs import config

    parser = ArgumentParser()
    config.add_arguments(parser)
    for words in (["-b", "amqp://h", "queues"], ["queues", "-b", "amqp://h"]):
        assert parser.parse_args(words).broker == "amqp://h"
    assert parser.parse_args(["queues"]).broker


def test_apply_sends_the_file_and_its_name(
    fake: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("policies: []\n")
    fake.answers["apply"] = {"changed": ["a", "b\x1b"]}
    assert cli.main(["config", "apply", str(file)]) == 0
    assert fake.calls[0][3] == {"text": "policies: []\n", "file": str(file)}
    assert capsys.readouterr().out == "applied; changed: a, b\\x1b\n"


def test_a_file_that_is_no_text_is_refused(fake: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    for raw in (b"\xff\xfe", bytes(1 << 21)):
        file.write_bytes(raw)
        assert cli.main(["config", "apply", str(file)]) == 2


def test_certificates_hold_a_hundred_years_at_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for days in ("36501", "99999999", "9" * 30):
        assert cli.main(["certs", "dev", str(tmp_path / "certs"), "--days", days]) == 2
        assert "a hundred years, at most" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_said_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import broker.client.link

    monkeypatch.setattr(broker.client.link, "Connection", lambda url: pytest.fail(f"asked {url}"))
    file = tmp_path / "nosuch"
    for flag in ("--csv", "--jsonl"):
        assert cli.main(["send", "a", flag, str(file)]) == 2
        assert capsys.readouterr() == ("", f"sluice send: {file}: No such file or directory\n")


# --- stat


def test_flow_shows_nodes_and_senders_but_no_receivers(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.entities["queue"] = [{"name": "orders", "flowStopped": True}, {"name": "$temporary/1"}]
    fake.entities["link"] = [
        {"role": "producer", "node": "orders", "link": "s1"},
        {"role": "consumer", "node": "orders", "link": "r1"},
        {"role": "producer", "node": "$temporary/1", "link": "s2"},
    ]
    assert cli.main(["stat", "-f", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in shown["flow"]] == ["orders"]
    assert [row["link"] for row in shown["senders"]] == ["s1"]
    assert cli.main(["stat", "-f", "--all", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["flow"]) == 2


def test_queues_are_shown_when_nothing_is_asked_for(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.entities["queue"] = [{"name": "orders", "depth_msgs": 7}, {"name": "stock"}]
    assert cli.main(["stat", "ord*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Queues"
    assert lines[3].split()[:4] == ["orders", "-", "-", "7"]
    assert len(lines) == 4


@pytest.mark.parametrize("flag", ["-g", "-c", "-q", "-u", "-f", "--general", "--flow"])
def test_every_view_can_be_shown(fake: FakeBroker, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stat", flag]) == 0
    assert capsys.readouterr().out


def test_every_attribute_asked_for_exists() -> None:
    from broker.cli.terminal import board, listings, table, views
    from broker.manage.attributes import PREFIX, names

    for shown in views.VIEWS.values():
        for view in shown:
            for kind in view.kinds:
                assert set(view.attributes) <= set(names(PREFIX + kind)), view.title
    for listing in listings.LISTINGS.values():
        for kind in listing.kinds:
            assert {*table.attributes(listing.columns), listing.about} <= set(names(PREFIX + kind))
    for kind in views.NODES:
        assert set(board.ATTRIBUTES) <= set(names(PREFIX + kind))
    assert set(board.BROKER_ATTRIBUTES) <= set(names(PREFIX + "broker"))


def test_watch_prints_again_until_it_is_interrupted(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    # In this module alone: whoever else sleeps in the process is no pause of ours.
    monkeypatch.setattr("broker.cli.verbs.watch.time", SimpleNamespace(sleep=sleep))
    assert cli.main(["stat", "-q", "--watch", "500ms"]) == cli.INTERRUPTED
    assert pauses == [0.5, 0.5, 0.5]
    assert capsys.readouterr().out.count("Queues") == 3


# --- explain, why, producers, schema


EXPLANATION = {
    "address": "orders",
    "kind": "queue",
    "exists": False,
    "auto_create": True,
    "held_by": "",
    "settings": [{"name": "max_count", "value": 1000, "origin": "policies/orders.yaml:4:5"}],
}


@pytest.mark.parametrize("words", [["explain", "orders"], ["config", "explain", "orders"]])
def test_explain(fake: FakeBroker, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["explain"] = EXPLANATION
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "queue 'orders': would be created by whoever attaches" in shown
    assert "max_count  1,000  policies/orders.yaml:4:5" in shown
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == EXPLANATION


def test_why_prints_one_sentence_a_line(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["why"] = {"answers": [{"sentence": "link 'a\x1b[1m' waits."}, {"sentence": "So does b."}]}
    assert cli.main(["why", "orders"]) == 0
    assert capsys.readouterr().out == "link 'a\\x1b[1m' waits.\nSo does b.\n"
    assert fake.calls == [("why", "org.sluice.broker", None, {"address": "orders"})]


def test_why_of_one_link_prints_the_terms_of_its_credit(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = [
        {"name": "window", "msgs": 1000, "gate": ""},
        {"name": "gate", "msgs": 0, "gate": "orders"},
        {"name": "memory", "msgs": None, "gate": "memory_limit"},
    ]
    answer = {"sentence": "It waits.", "link": "s1", "window": "Its window is 7.", "terms": terms}
    fake.answers["why"] = {"answers": [answer]}
    assert cli.main(["why", "s1"]) == 0
    assert capsys.readouterr().out == (
        "It waits.\n"
        "  Its window is 7.\n"
        "  Beyond what it holds it gets the least of: window 1,000, gate of 'orders' 0,"
        " memory of 'memory_limit' no limit.\n"
    )
    assert cli.main(["why", "orders"]) == 0
    assert capsys.readouterr().out == "It waits.\n"


def test_producers_stop_and_start(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers = {"stop-producers": {"nodes": ["a", "b"]}, "start-producers": {"nodes": []}}
    assert cli.main(["producers", "stop", "orders.>"]) == 0
    assert cli.main(["producers", "start", "--all"]) == 0
    assert [call[3] for call in fake.calls] == [{"target": "orders.>"}, {"target": ">"}]
    assert capsys.readouterr().out == "producers stopped: a, b\nproducers started: none at present\n"


@pytest.mark.parametrize("words", ["stop", "stop orders --all", "pause orders", ""])
def test_producers_of_whom_must_be_said(fake: FakeBroker, words: str) -> None:
    assert cli.main(["producers", *words.split()]) == 2
    assert fake.calls == []


@pytest.mark.parametrize("what", ["policies", "broker"])
def test_schemas_are_json_schemas(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    from jsonschema import Draft202012Validator

    assert cli.main(["schema", what]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_an_answer_of_another_shape_is_an_error_and_no_traceback(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers["why"] = ["not", "a", "map"]
    assert cli.main(["why", "orders"]) == 1
    assert "not a map" in capsys.readouterr().err


def test_help_and_parsing_load_neither_proton_nor_rich() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from broker.cli.main import main;"
        "[main([verb, '--help']) for verb in ('config', 'stat', 'explain', 'why', 'producers', 'schema')];"
        "print([name for name in ('proton', 'rich', 'yaml', 'cproton_ffi') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("store backup -b URL monday", {"action": "backup", "target": "monday", "broker": "URL"}),
        ("store -b URL backup monday", {"action": "backup", "target": "monday", "broker": "URL"}),
        ("store backup monday -b URL", {"action": "backup", "target": "monday", "broker": "URL"}),
        ("store check --data dir", {"action": "check", "target": None, "data": Path("dir")}),
        ("log-level sluice.http --json debug", {"logger": "sluice.http", "level": "debug", "json": True}),
        ("close c1 -b URL c2", {"ids": ["c1", "c2"]}),
        ("browse --count 3 -- -odd", {"address": "-odd", "count": 3}),
        ("config list -b URL ord*", {"filter": "ord*", "broker": "URL"}),
    ],
)
def test_options_stand_wherever_they_like(line: str, given: dict[str, object]) -> None:
    verb, *words = line.split()
    _, parser = cli.verb_of(verb)
    found = vars(cli._parsed(parser, words))
    assert {key: found[key] for key in given} == given
