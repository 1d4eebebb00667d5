"""The broker compiled otherwise than it is installed: copies of its sources in build/, built by setup.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def newest(*others: Path) -> float:
    """Return when the newest of the broker's sources, and of these files, was changed."""
    sources = [*(ROOT / "broker").rglob("*.p[yx]*"), *others]
    return max(each.stat().st_mtime for each in sources if each.suffix in (".py", ".pyx", ".pxd", ".c", ".h"))


def broker_built(kind: str, target: Path) -> None:
    """Compile the broker in a folder, as SLUICE_BUILD=``kind`` does; only what changed is built anew."""
    target.mkdir(parents=True, exist_ok=True)
    kept = shutil.ignore_patterns("*.so", "__pycache__")
    # Times are kept, so that only what changed is compiled again.
    shutil.copytree(ROOT / "broker", target / "broker", dirs_exist_ok=True, ignore=kept)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, target / name)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--parallel", "2"]
    subprocess.run(command, cwd=target, env=os.environ | {"SLUICE_BUILD": kind}, check=True)
