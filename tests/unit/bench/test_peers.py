"""What the benchmark of other brokers reads and writes: versions, their configurations, the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import activemq, artemis, rabbitmq, report, seen
from bench.peers.__main__ import PEERS, arguments, pace_of
from bench.peers.peer import LIMIT_MSGS, MissingError, version_of
from bench.peers.report import Measured
from bench.peers.scenarios import NO_RATIO, QUICK, ROWS, SCENARIOS, TRANSACTED, TRANSACTED_ROWS


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', "17.0.15"),
        ("3.10.8-1.1+deb12u1", "3.10.8"),
        ("qpidd (qpid-cpp) version 1.39.0", "1.39.0"),
    ],
)
def test_a_version_is_the_first_number_with_dots(text: str, version: str) -> None:
    assert version_of(text) == version


def test_a_program_without_a_version_is_missing() -> None:
    with pytest.raises(MissingError, match="no version in 'command not found'"):
        version_of("command not found\n")


TABLES = (report.PEERS, report.TRANSACTIONS)


def ours(**rounds: list[dict[str, float]]) -> Measured:
    return Measured("Sluice", "1", ("defaults",), "its own", "all", rounds)


def theirs(**rounds: list[dict[str, float]]) -> Measured:
    return Measured("Other", "2", ("<defaults>",), "", "nothing", rounds)


def row(table: str, title: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"| {title} |"))


def test_a_figure_is_a_median_with_its_ratio_to_ours() -> None:
    rounds = [{"rate": rate, "cpu_us": 2.0} for rate in (90_000.0, 100_000.0, 900_000.0)]
    table = report.table([ours(plain=rounds), theirs(plain=[{"rate": 25_000.0, "cpu_us": 30.0}])])
    assert table.splitlines()[:2] == ["| measured | Sluice | Other |", "| --- | ---: | ---: |"]
    assert row(table, "100 B, msg/s") == "| 100 B, msg/s | 100,000 | 25,000 (0.25×) |"
    assert row(table, "100 B, CPU µs/msg") == "| 100 B, CPU µs/msg | 2 | 30 (15×) |"


def test_without_ours_there_is_no_ratio() -> None:
    rounds = [{"rate": 100_000.0, "cpu_us": 2.0}]
    table = report.table([theirs(plain=rounds), theirs(plain=rounds)])
    assert row(table, "100 B, msg/s") == "| 100 B, msg/s | 100,000 | 100,000 |"


def test_what_failed_is_a_dash_with_one_numbered_reason() -> None:
    other = theirs()
    other.remarks |= {"latency": "it\nended | by itself", "kib": "it\nended | by itself"}
    table = report.table([ours(latency=[{"p50_us": 40.0, "p99_us": 90.0}]), other])
    assert row(table, "p50 at 2,000/s, µs").endswith("| 40 | –<sup>1</sup> |")
    assert row(table, "1 KiB, msg/s").endswith("| – | –<sup>1</sup> |")
    assert table.splitlines()[-2:] == ["", "1. Other: it ended / by itself"]


def test_a_remark_leaves_its_figure_standing() -> None:
    other = theirs(plain=[{"rate": 5.5, "cpu_us": 1.0}])
    other.remarks["plain"] = "2 out of order"
    assert row(report.table([ours(), other]), "100 B, msg/s").endswith("| – | 5.50<sup>1</sup> |")


def test_an_overshoot_has_no_ratio_and_zero_stays_zero() -> None:
    figures = {
        f"{kind}_{name}": 0.0 for kind in ("un", "pre") for name in ("over", "refused", "open", "lost")
    }
    table = report.table([ours(overshoot=[figures]), theirs(overshoot=[figures | {"un_over": 9000.0}])])
    assert row(table, "limit 1,000, 10 producers: accepted beyond it").endswith("| 0 | 9,000 |")


def test_a_figure_only_some_rounds_know_is_theirs() -> None:
    table = report.table([ours(durable=[{"rate": 10.0}]), theirs(durable=[{"rate": 10.0, "flushes": 3.0}])])
    assert row(table, "its disk flushes a 1,000 messages").endswith("| – | 3 |")


def test_the_page_says_how_each_was_run_and_what_was_not() -> None:
    text = report.page([ours(), theirs()], {"qpidd": "qpidd is not on the PATH"}, "run it", "2 cores", 3)
    assert "```console\nrun it\n```" in text
    assert "2 cores. Medians of 3, rounds interleaved" in text
    assert "**Sluice** 1\n\n- defaults\n- limit of 1,000: its own\n- durability: all" in text
    assert "- limit of 1,000: none that could be set here" in text
    assert text.endswith("### Not measured\n\n- qpidd: qpidd is not on the PATH")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_is_written_between_its_markers(tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.md"
    begin, end = report.markers(name)
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    report.write(path, "new", name)
    assert path.read_text() == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    path.write_text("no markers")
    with pytest.raises(ValueError, match="has no markers"):
        report.write(path, "new", name)


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_has_the_markers(name: str) -> None:
    text = Path("docs/performance.md").read_text()
    assert [text.count(marker) for marker in report.markers(name)] == [1, 1]


def test_every_row_belongs_to_a_scenario_and_no_figure_is_named_in_vain() -> None:
    assert {line.scenario for line in ROWS} == set(SCENARIOS)
    assert {line.scenario for line in TRANSACTED_ROWS} == set(TRANSACTED)
    assert {line.figure for line in ROWS} >= NO_RATIO


def test_a_broker_that_commits_faster_than_ours_is_named() -> None:
    mine = ours(**{"post-1": [{"rate": 100.0, "cpu_us": 9.0}], "post-10": [{"rate": 100.0, "cpu_us": 9.0}]})
    other = theirs(
        **{"post-1": [{"rate": 125.0, "cpu_us": 99.0}], "post-10": [{"rate": 99.0, "cpu_us": 1.0}]}
    )
    other.commit_sync = "none"
    assert report.ahead([mine, other]) == ["Other, sent, 1 in each: 1.25×"]
    text = report.transactions_page([mine, other], {}, "run it", "2 cores", 1)
    assert "| a commit's sync, by default | – | none |" in text
    assert text.endswith("Ahead of Sluice: Other, sent, 1 in each: 1.25×.")
    assert report.transactions_page([mine], {}, "run it", "2 cores", 1).endswith("in any rate.")


def test_artemis_gets_one_acceptor_and_a_limit() -> None:
    made = """<acceptors><acceptor name="artemis">tcp://127.0.0.1:61616?a=1</acceptor>
<acceptor name="amqp">tcp://127.0.0.1:5672?protocols=AMQP</acceptor></acceptors>
<!--default for catch all-->
<address-setting match="#">"""
    config = artemis.configured(made, 1234)
    assert (
        '<acceptors><acceptor name="amqp">tcp://127.0.0.1:1234?protocols=AMQP</acceptor></acceptors>'
        in config
    )
    assert f"<max-size-messages>{LIMIT_MSGS}</max-size-messages>" in config
    assert config.count('match="#"') == 1
    with pytest.raises(MissingError, match="another shape"):
        artemis.configured("<core/>", 1234)


def test_activemq_gets_one_connector_and_no_console() -> None:
    made = """<policyEntries></policyEntries><transportConnectors>
<transportConnector name="openwire" uri="tcp://0.0.0.0:61616?a=1"/>
<transportConnector name="amqp" uri="amqp://0.0.0.0:5672?b=1&amp;c=2"/>
</transportConnectors><shutdownHooks>x</shutdownHooks><import resource="jetty.xml"/>"""
    config = activemq.configured(made, 1234)
    assert '<transportConnector name="amqp" uri="amqp://127.0.0.1:1234?b=1&amp;c=2"/>' in config
    assert "openwire" not in config
    assert "jetty" not in config
    assert f'memoryLimit="{activemq.LIMIT_BYTES}"' in config


def test_rabbitmq_knows_its_user_and_limits_only_limited_queues(tmp_path: Path) -> None:
    launch = rabbitmq.RabbitMQ().prepare(tmp_path, 1234)
    text = (tmp_path / "definitions.json").read_text()
    assert '"pattern": "^flow[.]thousand[.]"' in text
    assert '"password_hash": "c2FsdD' in text  # the salt, then the digest
    assert launch.env["RABBITMQ_CONFIG_FILE"] == str(tmp_path / "rabbitmq.conf")
    assert launch.beside[0][0] == "epmd"


def test_a_class_histogram_ends_in_its_total() -> None:
    assert seen.total_of(" 1: 10 240 [B\nTotal         1234        567890\n") == 567_890
    assert seen.total_of("not a Java program") is None


def test_ours_comes_first_and_quick_is_quicker() -> None:
    assert next(iter(PEERS)) == "sluice"
    pace = pace_of(arguments(["--quick", "--seconds", "1"]))
    assert (pace.seconds, pace.backlog) == (1, QUICK.backlog)
