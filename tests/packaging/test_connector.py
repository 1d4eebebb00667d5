"""The connector's own wheel: pure Python, without the broker, and enough to write and read rows."""

from __future__ import annotations

import sysconfig
import zipfile
from pathlib import Path

import pytest

import broker
from tests.packaging.clean import ROOT, base_python, environment, run
from tests.packaging.connector import POLICIES, build_wheel, run_steps
from tests.spark.conftest import java
from tests.spark.reading import tally
from tests.wire.conftest import StartBroker, start_broker

__all__ = ["java", "start_broker"]

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def connector_env(tmp_path_factory: pytest.TempPathFactory, pip_cache: Path) -> dict[str, str]:
    return environment(tmp_path_factory.mktemp("connector-home"), pip_cache)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, connector_env: dict[str, str]) -> Path:
    return build_wheel(tmp_path_factory.mktemp("connector"), connector_env)


def test_it_has_the_modules_of_the_connector_only(wheel: Path) -> None:
    assert wheel.name == f"pyspark_sluice-{broker.__version__}-py3-none-any.whl"
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folders = (ROOT / "pyspark_sluice", ROOT / "pyspark_sluice_name")
    assert names == {str(path.relative_to(ROOT)) for folder in folders for path in folder.glob("*.py")}


def test_it_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("METADATA")]
        said = archive.read(metadata).decode()
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    lines = said.partition("\n\n")[0].splitlines()
    needed = {
        line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist") and ";" not in line
    }
    assert {name.partition(">")[0] for name in needed} == {"python-qpid-proton", "pyarrow", "numpy"}


def test_installed_alone_it_writes_and_reads(
    wheel: Path, connector_env: dict[str, str], java: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    run([base_python(), "-m", "venv", tmp_path / "venv"], connector_env, tmp_path)
    python = tmp_path / "venv/bin/python"
    run([python, "-m", "pip", "-q", "install", wheel], connector_env, tmp_path)
    # PySpark alone is 400 MB: it is taken from the checkout's environment, behind all that pip installed. The
    # checkout itself, which that environment has by a file of the same kind, doesn't come along.
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "pyspark.pth").write_text(sysconfig.get_path("purelib"))
    running = start_broker(policies=POLICIES)
    steps = ("versions", "write_batch", "foreach_batch", "table", "stream")
    found = run_steps(python, running.url, tmp_path / "steps", connector_env, *steps)
    assert found["versions"][1] == "no broker"
    assert found["write_batch"] == [1000, 1000]
    assert tally(running.url, "batch").count == 1000
    assert found["foreach_batch"] == [0, 1, 2, 2]
    assert tally(running.url, "foreach").count == 300
    assert found["table"] == 1000
    assert found["stream"] == [100, 100, 100, 100]
