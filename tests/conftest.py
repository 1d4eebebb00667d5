"""Shared by every tier: with SLUICE_PURE=1 the pure rooms are tested as plain Python, not compiled."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples

ROOT = Path(__file__).parent.parent


class PureFinder:
    """Finds the Python source of a pure room where a compiled module stands beside it."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The source's spec for a module with types for the compiler beside it; None for any other."""
        source = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        if not source.exists() or not source.with_suffix(".pxd").exists():
            return None
        return importlib.util.spec_from_file_location(name, source)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make clients-matrix` says, and how many cells a broker has."""
    said = "write docs/clients.md, and docs/security.md's table of mechanisms"
    parser.addoption("--write-matrix", action="store_true", help=said)
    said = "start brokers of so many cells, with connections in one that has not their first link's node"
    parser.addoption("--cells", type=int, default=0, metavar="N", help=said)


def pytest_configure(config: pytest.Config) -> None:
    """Have the brokers that tests start know of the option."""
    if config.getoption("--cells"):
        os.environ["SLUICE_TEST_CELLS"] = str(config.getoption("--cells"))


def pytest_report_header() -> list[str]:
    """Say which sources are newer than what was compiled of them: tests would try yesterday's code."""
    if os.environ.get("SLUICE_PURE"):
        return []
    made_s = {path.parent: path.stat().st_mtime for path in ROOT.glob("broker/**/_linked*.so")}
    sources = [
        *ROOT.glob("broker/**/*.pyx"),
        *(each.with_suffix(".py") for each in ROOT.glob("broker/**/*.pxd")),
    ]
    stale = sorted(
        str(each.relative_to(ROOT)) for each in sources if each.exists() and _is_newer(each, made_s)
    )
    return [f"changed since it was compiled (make install): {', '.join(stale)}"] if stale else []


def _is_newer(source: Path, made_s: dict[Path, float]) -> bool:
    """Whether a source was changed after its package, or one around it, was linked."""
    around = next((folder for folder in source.parents if folder in made_s), None)
    return around is not None and source.stat().st_mtime > made_s[around]


# How long an example takes is the machine's matter: one that was held for a moment says nothing of the code.
settings.register_profile(
    "untimed",
    settings.default,
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")

if os.environ.get("SLUICE_PURE"):
    sys.meta_path.insert(0, PureFinder())

# Signals that are ignored where we are started would be ignored by what we start, which tests end by them.
for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(each) is signal.SIG_IGN:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
