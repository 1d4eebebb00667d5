"""What the benchmark of replicated brokers makes of its rounds: medians, ratios, targets, tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measuring import Figures
from bench.peers.cell import Heard, OurCell, Traffic, lags_s, member_settings
from bench.peers.ours import Ours
from bench.peers.rabbitcluster import NODES, RabbitCluster
from bench.replicated import (
    QUEUES,
    REPLICATED,
    ROWS,
    SINGLE,
    TARGETS,
    Measured,
    Target,
    cells,
    family,
    kept,
    page,
    shown,
    table,
)
from broker.config.broker import load_settings


def of(*rounds: Figures) -> Measured:
    return Measured(OurCell(), "1", list(rounds))


def test_a_ratio_is_the_median_of_each_rounds_ratio() -> None:
    found = {
        REPLICATED: of({"rate": 10.0}, {"rate": 90.0}, {"rate": 30.0}),
        SINGLE: of({"rate": 100.0}, {"rate": 100.0}, {"rate": 100.0}),
    }
    target = Target("", "rate", REPLICATED, SINGLE, least=0.25)
    assert target.value(found) == pytest.approx(0.3)
    assert target.verdict(found).endswith("pass")
    assert Target("", "rate", REPLICATED, SINGLE, least=0.31).verdict(found).endswith("FAIL")
    assert Target("", "rate", REPLICATED, least=31).verdict(found) == "30 FAIL"


def test_what_is_not_there_is_not_judged() -> None:
    assert (
        Target("", "rate", REPLICATED, "rabbitmq", least=3).verdict({REPLICATED: of({"rate": 1.0})})
        == "not measured"
    )
    assert Target("", "lag_s", REPLICATED, most=1).verdict({REPLICATED: of({})}) == "not measured"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.text)
def test_each_target_can_be_missed(target: Target) -> None:
    assert target.figure in ROWS
    good, bad = (1e9, 1.0) if target.least else (0.5, 2.0)
    for value, verdict in ((good, "pass"), (bad, "FAIL")):
        found = {target.of: of({target.figure: value})}
        if target.to:
            found[target.to] = of({target.figure: 100.0})
        assert target.verdict(found).endswith(verdict)


def test_the_owners_connection_is_the_one_that_sent_most() -> None:
    before = Traffic({"log-1/4": (1000, 10), "log-2/9": (5_000_000, 7)}, 100)
    after = Traffic({"log-1/4": (9000, 14), "log-2/9": (5_000_100, 8), "log-3/1": (50, 1)}, 900)
    assert after.since(before) == (8000, 4, 800)


def test_a_standbys_lag_is_how_long_ago_the_owner_was_there() -> None:
    owner = [
        Heard(at, "owner", position) for at, position in ((10.0, 100), (11.0, 200), (12.0, 300), (13.0, 300))
    ]
    assert lags_s([*owner, Heard(12.5, "standby", 300)]) == [0.0]
    assert lags_s([*owner, Heard(12.5, "standby", 250)]) == [pytest.approx(1.0)]
    assert lags_s([*owner, Heard(12.5, "standby", 100)]) == [pytest.approx(2.5)]
    assert lags_s([*owner, Heard(12.5, "standby", 7)]) == [pytest.approx(2.5)]
    assert lags_s([*owner, Heard(9.0, "standby", 7), Heard(14.0, "standby", 7)]) == []
    assert lags_s([Heard(12.5, "standby", 7)]) == []


def test_the_page_names_what_is_missing_and_why() -> None:
    found = {
        SINGLE: Measured(Ours(), "1", [{"rate": 1234.5}]),
        REPLICATED: Measured(OurCell(), "1", [], "no log"),
    }
    text = page(found, {"Artemis, pair": "mvn is not on the PATH"}, [3.0, 12.0], markdown=True)
    assert "| durable 100 B, msg/s | 1,234 | – |" in text
    assert "- Artemis, pair: mvn is not on the PATH" in text
    assert "- Sluice, replicated: no log" in text
    assert "load average 3 to 12" in text


def test_tables_have_a_row_for_each_figure_that_was_measured() -> None:
    lines = cells({REPLICATED: of({"rate": 5.0, "lag_s": 0.0})})
    assert [line[0] for line in lines] == ["measured", ROWS["rate"], ROWS["lag_s"]]
    assert table(lines, markdown=True).splitlines()[1] == "| --- | ---: |"
    assert len({len(line) for line in table(lines, markdown=False).splitlines()}) == 1
    assert (shown(0), shown(0.2534), shown(90_000.4)) == ("0", "0.253", "90,000")


def test_a_members_file_is_one_that_the_broker_reads(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "policies.yaml").write_text("policies: []\n")
    file = tmp_path / "broker.yaml"
    file.write_text(member_settings(tmp_path, "a", 1, 5672, ["nats://127.0.0.1:4222"]))
    settings = load_settings(file, {}, {})
    assert list(map(str, settings.cluster.engine)) == ["nats://127.0.0.1:4222"]
    assert (settings.cluster.member, settings.cluster.rank) == ("a", 1)


def test_files_beneath_a_folder_are_counted(tmp_path: Path) -> None:
    (tmp_path / "msgs").mkdir()
    (tmp_path / "msgs" / "1.blk").write_bytes(bytes(300))
    (tmp_path / "log").write_bytes(bytes(7))
    assert kept(tmp_path) == 307


def test_a_peers_processes_are_those_that_have_its_folder_as_their_home(tmp_path: Path) -> None:
    assert family(tmp_path, os.getpid()) == [os.getpid()]


def test_each_node_of_rabbitmq_knows_all_and_has_ports_of_its_own(tmp_path: Path) -> None:
    launch = RabbitCluster(QUEUES).prepare(tmp_path, 15672)
    configs = [(tmp_path / f"node-{at}" / "rabbitmq.conf").read_text() for at in range(NODES)]
    assert all(text.count("classic_config.nodes.") == NODES for text in configs)
    assert len({text.splitlines()[0] for text in configs}) == NODES
    assert len(launch.beside) == NODES
    assert all(f'"name": "{name}"' in (tmp_path / "definitions.json").read_text() for name in QUEUES)
