"""One Spark: the job's container is of the release that the connector is written for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_jobs_container_has_the_spark_that_the_connector_needs() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    [least] = [each.removeprefix("pyspark>=") for each in wanted if each.startswith("pyspark")]
    images = re.findall(r"image: apache/spark:([\d.]+)-", (ROOT / "docker-compose.yml").read_text())
    assert [image.rpartition(".")[0] for image in images] == [least]
    assert f"PySpark {least}" in (ROOT / "docs/spark.md").read_text()
