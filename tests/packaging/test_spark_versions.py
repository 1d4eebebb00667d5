"""The connector's wheel with older versions of PySpark, each in an environment of its own.

An environment stays in build/spark-versions, since PySpark alone is 400 MB; Proton is compiled for the first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packaging.clean import ROOT, base_python, environment, run
from tests.packaging.connector import POLICIES, build_wheel, run_steps
from tests.spark.conftest import java
from tests.spark.reading import tally
from tests.wire.conftest import StartBroker, start_broker

__all__ = ["java", "start_broker"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ENVIRONMENTS = ROOT / "build/spark-versions"
# PySpark 3.5 takes a module that newer ones of Python don't have from setuptools, and knows no pandas 3.
BESIDE = ("setuptools", "pandas>=2.2,<3")


@pytest.fixture(scope="session")
def clean_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a new user; what pip has compiled is kept beside the environments."""
    return environment(tmp_path_factory.mktemp("home"), ENVIRONMENTS / "pip-cache")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, clean_env: dict[str, str]) -> Path:
    return build_wheel(tmp_path_factory.mktemp("connector"), clean_env)


def python_with(version: str, wheel: Path, env: dict[str, str]) -> Path:
    """The interpreter of an environment with this PySpark and the wheel as it is now."""
    folder, ready = ENVIRONMENTS / version, ENVIRONMENTS / version / "ready"
    python = folder / "bin/python"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        run([base_python(), "-m", "venv", folder], env, ENVIRONMENTS)
        run([python, "-m", "pip", "-q", "install", f"pyspark=={version}.*", *BESIDE, wheel], env, folder)
        ready.touch()
    again = ("--force-reinstall", "--no-deps", wheel)
    run([python, "-m", "pip", "-q", "install", *again], env, folder)
    return python


def test_spark_3_5_writes(
    java: str, start_broker: StartBroker, wheel: Path, clean_env: dict[str, str], tmp_path: Path
) -> None:
    broker = start_broker(policies=POLICIES)
    python = python_with("3.5", wheel, clean_env)
    steps = ("versions", "write_batch", "foreach_batch", "refused_source")
    found = run_steps(python, broker.url, tmp_path / "steps", clean_env, *steps)
    assert found["versions"][0].startswith("3.5.")
    assert found["versions"][1] == "no broker"
    # Accepted twice, and taken once: its ids are the same.
    assert found["write_batch"] == [1000, 1000]
    assert tally(broker.url, "batch").count == 1000
    assert found["foreach_batch"] == [0, 1, 2, 2]
    sent = tally(broker.url, "foreach")
    assert (sent.count, len(sent.bodies)) == (300, 300)
    assert {str(each).rsplit("-", 3)[0].rsplit("-", 1)[1] for each in sent.ids} == {"0", "1", "2"}
    assert "needs PySpark 4.0 or newer, and this is 3.5." in found["refused_source"]
    assert "foreach_batch" in found["refused_source"]


@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_spark_4_writes_and_reads_without_limits(
    version: str,
    java: str,
    start_broker: StartBroker,
    wheel: Path,
    clean_env: dict[str, str],
    tmp_path: Path,
) -> None:
    broker = start_broker(policies=POLICIES)
    python = python_with(version, wheel, clean_env)
    steps = ("versions", "foreach_batch", "sink", "table", "queue", "queue_once", "stream", "refused_limit")
    found = run_steps(python, broker.url, tmp_path / "steps", clean_env, *steps)
    assert found["versions"][0].startswith(f"{version}.")
    for address in ("foreach", "sink"):
        sent = tally(broker.url, address)
        assert (sent.count, len(sent.bodies)) == (300, 300), address
    assert found["table"] == 1000
    assert found["queue"] == {"first": 1000, "different": 1000, "largest": 300, "second": 10}
    assert tally(broker.url, "queue").count == 0
    # As the page says: no question comes after the only batch, so it isn't settled.
    assert found["queue_once"] == [50, 50]
    assert found["stream"] == [100, 100, 100, 100]
    assert "maxOffsetsPerTrigger: PySpark 4.2 or newer is needed" in found["refused_limit"]
