"""The connector's wheel, built from this checkout, and environments that have it and a PySpark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.packaging.clean import base_python, checkout, run

PROGRAM = Path(__file__).with_name("spark_program.py")
POLICIES = """policies:
  - {match: log, kind: stream, duplicate_window: 0}
  - {match: ">", durable: true, duplicate_window: 100000}
"""


def build_wheel(work: Path, env: Mapping[str, str]) -> Path:
    """What `pip wheel` makes of the folder in a clone."""
    checkout(work / "source")
    run([base_python(), "-m", "venv", work / "builder"], env, work)
    source, into = work / "source/packages/pyspark-sluice", work / "dist"
    python = work / "builder/bin/python"
    run([python, "-m", "pip", "-q", "wheel", "--no-deps", "-w", into, source], env, work)
    [wheel] = (work / "dist").iterdir()
    return wheel


def run_steps(python: Path, url: str, folder: Path, env: Mapping[str, str], *steps: str) -> dict[str, Any]:
    """What each step found, by its name; AssertionError with all that was said where one failed."""
    folder.mkdir()
    given = {**env, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    said = run([python, PROGRAM, url, folder, *steps], given, folder)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"step"')]
    found = {line["step"]: line["found"] for line in lines}
    assert list(found) == list(steps), said[-8000:]
    return found
