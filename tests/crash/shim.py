"""The fault shim, compiled once, and its switches."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

SOURCE = Path(__file__).with_name("shim.c")


@cache
def library() -> Path:
    """The compiled shim."""
    built = Path(mkdtemp(prefix="sluice-shim-")) / "shim.so"
    subprocess.run(
        ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"],
        check=True,
    )
    return built


class Shim:
    """Faults for one data directory; ``log`` records its writes where one is wanted."""

    def __init__(self, folder: Path, data: Path, log: Path | None = None) -> None:
        self.control = folder / "faults"
        self.control.mkdir()
        self.env = {
            "LD_PRELOAD": str(library()),
            "SHIM_DIR": str(data),
            "SHIM_CONTROL": str(self.control),
        }
        if log is not None:
            self.env["SHIM_LOG"] = str(log)

    def on(self, fault: str, text: str = "") -> None:
        """Switch a fault on."""
        (self.control / fault).write_text(text)

    def clear(self) -> None:
        """Switch all of them off, and forget which calls failed."""
        for each in self.control.iterdir():
            each.unlink(missing_ok=True)

    def off(self, fault: str) -> None:
        """Switch it off."""
        (self.control / fault).unlink()
