"""ingest and aggregate: files through a real broker into windows, equal to the same sums over the files."""

from __future__ import annotations

import csv
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from proton import Message

from broker.client.link import Connection
from broker.client.request import Management
from broker.codec import sections
from examples.flights import table
from pyspark_sluice.jobs import aggregate, ingest
from tests.spark.conftest import ReturningBroker
from tests.wire.conftest import RunningBroker, StartBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 12_000
SCHEMA = "time_hour timestamp, origin string, carrier string, dep_delay int, flight int"
SUMS = ("--time", "time_hour", "--window", "1 day", "--by", "origin", "--measure", "dep_delay")
Key = tuple[datetime, str]


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rows of the flights table as CSV; no value is NA, as in the data's own."""
    file = tmp_path_factory.mktemp("flights") / "flights.csv"
    columns = ("time_hour", "origin", "carrier", "dep_delay", "flight")
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        for row in map(json.loads, table.rows(ROWS)):
            writer.writerow(["NA" if row[name] is None else row[name] for name in columns])
    return file


def days(file: Path) -> dict[Key, tuple[int, int, int]]:
    """Of each day and origin: rows, delays that are known, their sum; without any Spark."""
    rows: Counter[Key] = Counter()
    known: Counter[Key] = Counter()
    total: Counter[Key] = Counter()
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
            key = (at.replace(hour=0, minute=0, second=0, tzinfo=None), row["origin"])
            rows[key] += 1
            if row["dep_delay"] != "NA":
                known[key] += 1
                total[key] += int(row["dep_delay"])
    return {key: (rows[key], known[key], total[key]) for key in rows}


def summed(spark: SparkSession, out: Path) -> dict[Key, tuple[int, int, int]]:
    """The same from the job's windows."""
    found = spark.read.parquet(str(out / "windows")).collect()
    result = {}
    for row in found:
        at = row["window_begin"].astimezone(UTC).replace(tzinfo=None)
        key = (at, row["origin"])
        assert key not in result, "a window was written twice"
        assert row["window_end"] - row["window_begin"] == timedelta(days=1)
        result[key] = (row["rows"], row["dep_delay_count"], row["dep_delay_sum"] or 0)
    return result


def send(broker: RunningBroker | ReturningBroker, file: Path, *more: str) -> int:
    ends = ("--null", "NA", "--schema", SCHEMA, "--order-by", "time_hour", "--end-mark", "3 days")
    return ingest.main([str(file), "flights", "-b", broker.url, *ends, *more])


def depth(url: str) -> int:
    with Management(url) as management:
        found = management.call("READ", "org.sluice.queue", "flights").body
    assert isinstance(found, dict)
    return int(found["depth_msgs"])


@pytest.fixture
def roomy(start_broker: StartBroker) -> RunningBroker:
    """A queue that is large enough for all of it."""
    return start_broker(policies="policies:\n  - match: flights\n    flow_stop_count: 100000\n")


@pytest.mark.timeout(400)
def test_windows_from_the_queue_equal_those_of_the_file(
    spark: SparkSession,
    roomy: RunningBroker,
    flights: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert send(roomy, flights, "--subject", "carrier") == 0
    assert f"{ROWS:,} rows accepted by flights" in capsys.readouterr().out
    assert depth(roomy.url) == ROWS + 1
    out = tmp_path / "out"
    sums = ("--schema", SCHEMA, "--null", "NA", *SUMS, "--once", "--compare", str(flights))
    assert aggregate.main(["flights", "-b", roomy.url, "--out", str(out), *sums]) == 0
    told = capsys.readouterr().out
    assert "equal" in told
    assert "0 too late" in told
    assert summed(spark, out) == days(flights)
    page = (out / "report.html").read_text()
    assert "equal" in page
    assert "The fullest windows" in page


@pytest.mark.timeout(400)
def test_what_is_sent_twice_counts_once(
    spark: SparkSession, returning_broker: ReturningBroker, flights: Path, tmp_path: Path
) -> None:
    """The same --id again, in part before a restart of the broker: its duplicate window tells."""
    part = tmp_path / "part.csv"
    part.write_text("".join(flights.read_text().splitlines(keepends=True)[:2001]))
    assert send(returning_broker, part, "--id", "january") == 0
    returning_broker.kill()
    returning_broker.start()
    assert send(returning_broker, part, "--id", "january") == 0
    assert depth(returning_broker.url) == 2001
    out = tmp_path / "out"
    sums = ("--schema", SCHEMA, *SUMS, "--once")
    assert aggregate.main(["flights", "-b", returning_broker.url, "--out", str(out), *sums]) == 0
    assert summed(spark, out) == days(part)


@pytest.mark.timeout(400)
def test_it_goes_on_where_it_was(
    spark: SparkSession, roomy: RunningBroker, flights: Path, tmp_path: Path
) -> None:
    """Two runs with one checkpoint, the second over rows that belong into windows of the first."""
    head, *rest = flights.read_text().splitlines(keepends=True)
    # In the order of their time, the first column: else some of the second run's would be late.
    lines = [head, *sorted(rest[:4000])]
    parts = [tmp_path / "first.csv", tmp_path / "second.csv"]
    parts[0].write_text("".join(lines[:2001]))
    parts[1].write_text("".join([lines[0], *lines[2001:4001]]))
    both = tmp_path / "both.csv"
    both.write_text("".join(lines[:4001]))
    out = tmp_path / "out"
    again = ("flights", "-b", roomy.url, "--out", str(out), "--schema", SCHEMA, *SUMS, "--once")
    fed = ("flights", "-b", roomy.url, "--null", "NA", "--schema", SCHEMA, "--order-by", "time_hour")
    assert ingest.main([str(parts[0]), *fed]) == 0
    assert aggregate.main([*again]) == 0
    assert len(summed(spark, out)) < len(days(parts[0])), "the last windows are still open"
    assert ingest.main([str(parts[1]), *fed, "--end-mark", "3 days"]) == 0
    assert aggregate.main([*again]) == 0
    assert summed(spark, out) == days(both)


def test_rows_without_an_id_all_count(spark: SparkSession, roomy: RunningBroker, tmp_path: Path) -> None:
    """Another client's messages: nothing tells one from another, so none is taken for a second one."""
    row = {"time_hour": "2013-01-01T05:00:00Z", "origin": "JFK", "dep_delay": 1}
    last = {"time_hour": "2013-02-01T05:00:00Z"}
    with Connection(roomy.url) as connection:
        sender = connection.sender("flights")
        for each in [row] * 50 + [last]:
            sender.send(sections.text_body(json.dumps(each)))
        sender.flush(10.0)
    out = tmp_path / "out"
    sums = ("--schema", SCHEMA, *SUMS, "--once")
    assert aggregate.main(["flights", "-b", roomy.url, "--out", str(out), *sums]) == 0
    assert summed(spark, out) == {(datetime(2013, 1, 1), "JFK"): (50, 50, 50)}


def test_a_timestamp_keeps_its_microseconds_and_has_its_offset(
    spark: SparkSession, roomy: RunningBroker, tmp_path: Path
) -> None:
    file = tmp_path / "one.csv"
    file.write_text("at\n2013-01-01T05:00:00.123456+02:00\n")
    assert ingest.main([str(file), "flights", "-b", roomy.url, "--schema", "at timestamp"]) == 0
    with Connection(roomy.url) as connection:
        (encoded,) = connection.receiver("flights").take(1, 10.0)
    assert b'{"at":"2013-01-01T03:00:00.123456Z"}' in encoded


def test_columns_are_found_in_any_case(spark: SparkSession, roomy: RunningBroker, tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text("carrier,origin\nAA,JFK\n")
    named = ("--schema", "carrier string, origin string", "--group", "Carrier", "--subject", "ORIGIN")
    assert ingest.main([str(file), "flights", "-b", roomy.url, *named]) == 0
    with Connection(roomy.url) as connection:
        (encoded,) = connection.receiver("flights").take(1, 10.0)
    message = Message()
    message.decode(encoded)
    assert (message.group_id, message.subject) == ("AA", "JFK")


def test_a_difference_is_told(
    spark: SparkSession,
    roomy: RunningBroker,
    flights: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    part = tmp_path / "part.csv"
    part.write_text("".join(flights.read_text().splitlines(keepends=True)[:1501]))
    assert send(roomy, part, "--rows", "1400") == 0
    sums = ("--schema", SCHEMA, "--null", "NA", *SUMS, "--once", "--compare", str(part))
    assert aggregate.main(["flights", "-b", roomy.url, "--out", str(tmp_path / "out"), *sums]) == 1
    assert "missing or different" in capsys.readouterr().out


def test_what_makes_no_sense_is_refused(
    spark: SparkSession, flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest.main([str(flights), "flights", "--end-mark", "1 day"]) == 1
    assert "--end-mark needs --order-by" in capsys.readouterr().err
    assert ingest.main([str(flights), "flights", "--schema", "nothing int"]) == 1
    assert "no column nothing; there are time_hour" in capsys.readouterr().err
    for option in ("--group", "--subject", "--order-by"):
        assert ingest.main([str(flights), "flights", option, "nosuch"]) == 1
        assert "no column nosuch; there are time_hour" in capsys.readouterr().err
    assert ingest.main([str(flights), "flights", "-o", "adress=x"]) == 1
    assert "did you mean 'address'" in capsys.readouterr().err
