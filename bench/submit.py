"""``spark-submit`` as somebody runs it whose environment is activated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_FOLDER = Path(sys.executable).parent
SUBMIT = str(_FOLDER / "spark-submit")


def surroundings() -> dict[str, str]:
    """Its environment: it looks for Spark by the Python that it finds on the path, whichever started us."""
    path = os.pathsep.join((str(_FOLDER), os.environ.get("PATH", "")))
    return os.environ | {"PATH": path, "PYSPARK_PYTHON": sys.executable}
