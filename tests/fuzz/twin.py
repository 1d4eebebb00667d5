"""The same modules twice: as they are compiled, and as the Python they are written in.

Compiled, an index out of range is a read of somebody else's memory; as Python it is an IndexError. So one
that does what the other does not is a fault of the worst kind, seen without any sanitizer.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


class _Sources:
    """Finds the source of every module of the broker that has one in Python."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("broker."):
            return None
        source = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        return importlib.util.spec_from_file_location(name, source) if source.exists() else None


def pure(*names: str) -> list[ModuleType]:
    """These modules, and all that they import of the broker, as plain Python; beside what is loaded
    already."""
    loaded = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "broker"}
    for name in loaded:
        del sys.modules[name]
    finder = _Sources()
    sys.meta_path.insert(0, finder)
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "broker"]:
            del sys.modules[name]
        sys.modules.update(loaded)
