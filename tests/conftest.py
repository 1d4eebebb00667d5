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
    """What `make clients-matrix` says."""
    said = "write docs/clients.md, and docs/security.md's table of mechanisms"
    parser.addoption("--write-matrix", action="store_true", help=said)


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
