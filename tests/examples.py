"""How many examples a test takes from hypothesis."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """So many; a quarter where the pure rooms are plain Python, for the compiled run tries them all."""
    return max(count // 4, 5) if os.environ.get("SLUICE_PURE") else count
