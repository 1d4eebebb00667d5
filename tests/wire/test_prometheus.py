"""A real Prometheus scrapes a real broker; every rule and every query of the dashboard is run in it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from bench.contenders import free_port
from broker.client.link import Connection
from broker.codec import sections
from broker.http.metrics.cluster import OF_CLUSTER
from tests.needs import program
from tests.wire.conftest import START_SECONDS, RunningBroker, wait_until
from tests.wire.seeing import number_of
from tests.wire.tlsworld import Pki

pytestmark = pytest.mark.wire

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "etc" / "prometheus" / "sluice-rules.yml"
DASHBOARD = ROOT / "etc" / "grafana" / "dashboards" / "sluice.json"
BODY = sections.text_body("x" * 100)
DURABLE = sections.header(durable=True) + BODY

CONFIG = """
metrics: {{per_subscription: true, per_link: true}}
bridges: [{{from: kept, to: copies}}]
routes: [{{name: hq, url: "amqp://127.0.0.1:{dead}", address: outward}}]
channels: [{{name: ticker, topic: prices, to: "127.0.0.1:{dead}", max_rate: 1MB}}]
"""
POLICIES = """
policies:
  - {match: orders, flow_stop_count: 10, flow_resume_count: 5}
  - {match: kept, durable: true}
  - {match: held}
  - {match: flights, kind: stream}
  - {match: prices, kind: topic}
  - {match: small, max_count: 2, flow_control: false, overflow: reject}
"""
SCRAPED = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - {{job_name: sluice, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}
"""


class Prometheus:
    """A server of its own that scrapes one broker once a second."""

    def __init__(self, server: str, folder: Path, broker: RunningBroker) -> None:
        folder.mkdir()
        (folder / "prometheus.yml").write_text(SCRAPED.format(rules=RULES, port=broker.http_port))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = folder / "log"
        command = [
            server,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urlopen(self.url + "/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except HTTPError as early:
            early.close()
            return False
        except OSError:
            return False

    def get(self, path: str, **arguments: str) -> Any:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(arguments)}", timeout=10) as response:
            answer = json.loads(response.read())
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text: str) -> list[Any]:
        found = self.get("query", query=text)["result"]
        assert isinstance(found, list)
        return found

    def series(self, text: str) -> Any:
        """The one there is; none while the last scrape came too late, as on a machine that is busy."""
        found: list[Any] = []

        def is_there() -> bool:
            # What is asked for again may be gone again.
            found[:] = self.query(text)
            return found != []

        wait_until(is_there, 30, f"a value of {text}")
        [only] = found
        return only

    def value(self, text: str) -> float:
        """Its value."""
        return float(self.series(text)["value"][1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def page(broker: RunningBroker) -> bytes:
    with urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=START_SECONDS) as response:
        return bytes(response.read())


def send(connection: Connection, address: str, count: int) -> None:
    sender = connection.sender(address)
    for _ in range(count):
        sender.send(BODY, 10)
    sender.flush(10)


class Load:
    """A broker on which something of everything happens, while the block lasts."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.connection = Connection(broker.url)
        self.kept = self.connection.sender("kept")
        self.receiver = self.connection.receiver("kept", credit=5)
        self.news = self.connection.receiver("prices", credit=5)
        send(self.connection, "copies", 1)
        send(self.connection, "outward", 1)
        send(self.connection, "prices", 3)
        self.orders = self.connection.sender("orders")
        for _ in range(10):
            self.orders.send(BODY, 10)
        self.orders.flush(10)
        self.waiting = self.connection.receiver("held", credit=5)
        self.reading = self.connection.receiver("flights::billing", credit=5)

    def go_on(self) -> None:
        """Durable messages come and go."""
        self.kept.send(DURABLE, 10)
        self.kept.flush(10)
        self.receiver.take(1, 10)

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    # With TLS, so that there are series of it.
    config = CONFIG.format(dead=free_port()) + Pki.at(tmp_path_factory.mktemp("tls") / "certs").section()
    args = ("--listen", "amqps://127.0.0.1:0")
    broker = RunningBroker(tmp_path_factory.mktemp("scraped"), config, POLICIES, args)
    try:
        with closing(Load(broker)) as found:
            yield found
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def prometheus(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    found = Prometheus(program("prometheus"), tmp_path_factory.mktemp("prometheus") / "server", load.broker)
    try:
        wait_until(found.is_ready, 30, "Prometheus to be ready")
        yield found
    finally:
        found.stop()


def until(load: Load, condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Until a condition holds, while the load goes on."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        load.go_on()


def promtool(*words: str, given: bytes = b"") -> str:
    done = subprocess.run([program("promtool"), *words], input=given, capture_output=True, timeout=60)
    told = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, told
    return told


def test_promtool_finds_nothing_wrong_with_the_metrics(load: Load) -> None:
    load.go_on()
    text = page(load.broker)
    assert b"sluice_producer_link_credit{" in text
    assert b"sluice_subscription_depth_messages{" in text
    assert promtool("check", "metrics", given=text) == ""


def test_promtool_accepts_rules_their_test_and_the_configuration() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("check", "config", str(RULES.parent / "prometheus.yml"))
    assert "SUCCESS" in promtool("test", "rules", str(RULES.parent / "sluice-rules-test.yml"))


def test_prometheus_has_what_the_broker_says(load: Load, prometheus: Prometheus) -> None:
    until(load, lambda: prometheus.query('up{job="sluice"} == 1') != [], "the broker to be scraped")
    stopped = 'sluice_queue_flow_stopped{queue="orders"} == 1'
    until(load, lambda: prometheus.query(stopped) != [], "the stop to be seen")
    assert prometheus.value('sluice_queue_depth_messages{queue="orders"}') == 10
    assert prometheus.value('sluice_queue_flow_stop_messages{queue="orders"}') == 10
    assert prometheus.value('sluice_queue_flow_resume_messages{queue="orders"}') == 5
    assert prometheus.value('sluice_queue_depth_bytes{queue="orders"}') == number_of(
        load.broker, "orders", "depth_bytes"
    )
    assert prometheus.value('sluice_route_up{route="hq"}') == 0
    assert prometheus.value("sluice_stopped_nodes") == 1
    assert prometheus.value('sluice_queue_info{queue="kept"}') == 1
    info = prometheus.series('sluice_queue_info{queue="kept"}')
    assert (info["metric"]["kind"], info["metric"]["durable"]) == ("queue", "true")
    types = {name: found[0]["type"] for name, found in prometheus.get("metadata").items()}
    assert types["sluice_queue_flow_stopped"] == "gauge"
    assert types["sluice_queue_flow_stopped_total"] == "counter"


def test_every_rule_is_evaluated_on_series_that_exist(load: Load, prometheus: Prometheus) -> None:
    def groups() -> list[Any]:
        return list(prometheus.get("rules")["groups"])

    def rules() -> list[Any]:
        return [rule for group in groups() for rule in group["rules"]]

    until(load, lambda: all(rule["health"] != "unknown" for rule in rules()), "every rule's evaluation")
    until(load, lambda: prometheus.query("sluice:queue_fill:ratio") != [], "the recorded rules")
    assert [rule["name"] for rule in rules() if rule["health"] != "ok" or rule.get("lastError")] == []
    for rule in rules():
        for name in set(re.findall(r"\b(?:sluice_|process_)\w+|\bup\b", rule["query"])):
            if name.startswith("sluice_cluster_"):  # a single broker has none: tests/cluster/test_faces.py
                assert name in {each.name for each in OF_CLUSTER}
                continue
            if name == "sluice_cell_up":  # nor this one: tests/wire/test_cells_http.py
                continue
            wait_until(
                lambda name=name: prometheus.query(name) != [],  # type: ignore[misc]
                30,
                f"{name}, which {rule['name']} is about and nobody scraped",
            )
    assert prometheus.value('sluice:queue_fill:ratio{queue="orders"}') == 1
    until(
        load,
        lambda: (
            {"SluiceProducersStopped", "SluiceRouteDown", "SluiceRestarted", "SluiceNobodyConsumes"}
            <= {rule["name"] for rule in rules() if rule.get("state") in ("pending", "firing")}
        ),
        "the alerts there is a reason for",
    )
    quiet = {"SluiceDown", "SluiceDeadlock", "SluiceStoreNotWriting", "SluiceMessagesDropped"}
    # A scrape that came too late is a reason for SluiceDown, until the next one.
    until(
        load,
        lambda: {rule["state"] for rule in rules() if rule["name"] in quiet} == {"inactive"},
        "the alerts there is no reason for to be quiet",
    )


def queries() -> list[tuple[str, str]]:
    """Panel and query of everything the dashboard asks, its variables included."""
    dashboard = json.loads(DASHBOARD.read_text())
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def filled(expression: str) -> str:
    chosen = {"$__rate_interval": "10s", "$instance": ".*", "$queue": ".*"}
    for name, value in chosen.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def test_every_query_of_the_dashboard_returns_data(load: Load, prometheus: Prometheus) -> None:
    left = {filled(expression): title for title, expression in queries()}
    assert len(left) > 40

    def all_answered() -> bool:
        for expression in [each for each in left if prometheus.query(each)]:
            del left[expression]
        return not left

    deadline = time.monotonic() + 30
    while not all_answered():
        assert time.monotonic() < deadline, f"no data for {left}"
        load.go_on()


def test_the_dashboards_variables_have_values(load: Load, prometheus: Prometheus) -> None:
    until(load, lambda: prometheus.query("sluice_build_info") != [], "a scrape")
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert asked is not None
        found = prometheus.get(f"label/{asked[2]}/values", **{"match[]": filled(asked[1])})
        assert found, variable["name"]


def test_the_provisioning_names_what_is_there() -> None:
    text = (ROOT / "etc" / "grafana" / "provisioning" / "dashboards" / "sluice.yaml").read_text()
    assert "path: /var/lib/grafana/dashboards" in text
    assert json.loads(DASHBOARD.read_text())["uid"] == "sluice"
