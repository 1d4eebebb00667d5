"""The connector's own pyproject.toml has the broker's version and the bounds of its dependencies."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
CONNECTOR = ROOT / "packages/pyspark-sluice"


def project(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text())["project"]
    return found


def bounds(listed: list[str]) -> dict[str, str]:
    return {re.split("[<>=]", each)[0]: each for each in listed}


def test_it_is_of_one_version_with_the_broker() -> None:
    ours, broker = project(CONNECTOR / "pyproject.toml"), project(ROOT / "pyproject.toml")
    assert ours["version"] == broker["version"]
    assert ours["requires-python"] == broker["requires-python"]
    known = bounds(broker["dependencies"]) | bounds(broker["optional-dependencies"]["spark"])
    for name, bound in bounds(ours["dependencies"]).items():
        assert known[name] == bound


def test_its_modules_are_the_repository_s() -> None:
    for name in ("pyspark_sluice", "pyspark_sluice_name", "LICENSE"):
        assert (CONNECTOR / name).resolve() == ROOT / name
