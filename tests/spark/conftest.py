"""ONE Spark session per run, brokers that can be killed and come back, and the table of faults.

``local[2,3]``: a task that fails is tried again, twice at most, as on a cluster. What kills a JVM starts one
of its own. Java is the machine's; where it is missing these tests are skipped, but never in CI.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.contenders import free_port
from tests.wire.conftest import RunningBroker, StartBroker, broker, start_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StartBroker", "broker", "start_broker"]

ROOT = Path(__file__).parents[2]
MASTER = "local[2,3]"
# In the environment of every Python worker, which a JVM hands on as it was when it started.
PASSWORD_VARIABLE, PASSWORD = "SLUICE_TEST_PASSWORD", "correct horse"


@dataclass(frozen=True)
class Fault:
    """A row of the table: what was done, and what became of the messages."""

    fault: str
    end: str
    rows_in: int
    rows_out: int
    lost: int
    duplicates: int
    remark: str = ""


_FAULTS: list[Fault] = []


# Spark's remark on a pandas that is newer than it knows.
PANDAS = "ignore:PySpark does not yet fully support pandas:FutureWarning"
# Py4J leaves the sockets of its threads to the collector of garbage.
PY4J = (
    "ignore:.*unclosed <socket:ResourceWarning",
    "ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need a JVM are marked; the others start brokers as any test does, beside any other."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(600))
        item.add_marker(pytest.mark.filterwarnings(PANDAS))
        if "java" in item.fixturenames:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.spark)
            for each in PY4J:
                item.add_marker(pytest.mark.filterwarnings(each))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The faults and their counts, where a run had any."""
    if not _FAULTS:
        return
    terminalreporter.section("Spark: faults")
    head = ("fault", "end", "rows in", "rows out", "lost", "duplicates", "remark")
    rows = [head] + [
        (f.fault, f.end, f"{f.rows_in:,}", f"{f.rows_out:,}", f"{f.lost:,}", f"{f.duplicates:,}", f.remark)
        for f in _FAULTS
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    for row in rows:
        terminalreporter.write_line("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


@pytest.fixture(scope="session")
def java() -> str:
    """The machine's Java."""
    found = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("Java is missing; in CI that is no reason to skip")
        pytest.skip("Java is missing (17 or newer; Debian: openjdk-17-jre-headless)")
    return found


@pytest.fixture
def faults() -> list[Fault]:
    """Rows of the table that is printed at the end of the run: ``faults.append(Fault(…))``."""
    return _FAULTS


def spark_environment() -> dict[str, str]:
    """What a JVM and its Python workers are started with."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        PASSWORD_VARIABLE: PASSWORD,
    }


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A test's code runs a few times: it isn't worth the second compiler, nor several threads of a collector.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session. A test ends the queries it began."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = SparkSession.builder.master(MASTER).appName("sluice tests")
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def no_query_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Queries that a failed test left behind would disturb the next one's counts."""
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


# Durable, and duplicates recognised but by `plain`; `full` rejects, three others stop their producers.
POLICIES = """policies:
  - {match: ">", durable: true, duplicate_window: 100000}
  - {match: plain, duplicate_window: 0, flow_stop_count: 1000, flow_resume_count: 500, max_count: 2000}
  - {match: slow, flow_stop_count: 2500, flow_resume_count: 2000, max_count: 5000}
  - {match: brief, flow_stop_count: 1000, flow_resume_count: 500, max_count: 2000}
  - {match: full, flow_stop_count: 500, max_count: 500, when_full: reject}
"""


class ReturningBroker:
    """A broker on one port and one data directory, as often as it takes."""

    def __init__(self, folder: Path, policies: str, config: str) -> None:
        self._given = (folder, config, policies)
        self.port = free_port()
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.running: RunningBroker | None = None
        self.start()

    def start(self) -> None:
        """Start it, on what it left behind."""
        self.running = RunningBroker(*self._given, ("--listen", self.url))

    def stop(self) -> None:
        """In order."""
        if self.running is not None:
            running, self.running = self.running, None
            running.stop()

    @property
    def log(self) -> str:
        """What it has said since its last start."""
        return self.running.log if self.running is not None else ""

    def depth(self, queue: str) -> int:
        """Messages in a queue; 0 if there is none of that name yet."""
        assert self.running is not None
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.running.http_port}/metrics", timeout=30
        ) as answer:
            found = re.search(
                rf'^sluice_queue_depth_messages\{{[^}}]*queue="{queue}"[^}}]*\}} (\S+)',
                answer.read().decode(),
                re.M,
            )
        return int(float(found[1])) if found else 0

    def kill(self) -> None:
        """As a power failure would."""
        assert self.running is not None
        self.running.signal(signal.SIGKILL)
        self.running.process.wait()
        self.stop()


@pytest.fixture
def returning_broker(tmp_path: Path) -> Iterator[ReturningBroker]:
    """Durable queues, duplicates recognised, in a broker that can be killed and started again."""
    broker = ReturningBroker(tmp_path / "returning", POLICIES, "")
    yield broker
    broker.stop()
