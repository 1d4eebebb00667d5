"""Programs of the system that a test needs: where one is missing the test is skipped, in CI it fails."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str) -> str:
    """The program's path."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed")
    pytest.skip(f"{name} is not installed")
