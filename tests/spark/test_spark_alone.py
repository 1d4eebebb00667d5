"""The connector needs nothing else of the broker: a zip of its folder is enough, and Spark finds it."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

from tests.spark.conftest import ROOT

ALL = """
import importlib, pathlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import pyspark_sluice
for each in pkgutil.iter_modules(pyspark_sluice.__path__):
    importlib.import_module(f"pyspark_sluice.{each.name}")
assert pyspark_sluice.__file__.startswith(sys.argv[1]), pyspark_sluice.__file__
assert "broker" not in sys.modules
print(pyspark_sluice.DefaultSource.name())
"""


def test_a_zip_of_it_is_enough(tmp_path: Path) -> None:
    packed = tmp_path / "pyspark_sluice.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted((ROOT / "pyspark_sluice").glob("*.py")):
            archive.write(path, f"pyspark_sluice/{path.name}")
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALL, str(packed)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "amqp\n"), done.stderr


def test_spark_finds_it_where_it_looks() -> None:
    found = {each.name for each in pkgutil.iter_modules([str(ROOT)])}
    names = {import_module(each).DefaultSource.name() for each in found if each.startswith("pyspark_")}
    assert names == {"amqp", "sluice"}
