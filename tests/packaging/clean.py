"""An environment with nothing of ours in it: what a stranger's machine has before they install anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_S = 900
# How this machine reaches packages: not ours to change.
KEPT = re.compile(r"^(PIP_|SSL_|REQUESTS_|https?_proxy|no_proxy|LANG)", re.IGNORECASE)


def base_python() -> str:
    """The interpreter that virtual environments are made of."""
    return str(getattr(sys, "_base_executable", sys.executable))


def environment(home: Path, cache: Path) -> dict[str, str]:
    """The variables of a new user, whose home is empty; ``cache`` keeps what pip has compiled."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
    return kept | {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PIP_CACHE_DIR": str(cache),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def run(command: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> str:
    """What it said; AssertionError with it where it failed."""
    done = subprocess.run(
        [str(word) for word in command],
        env=dict(env),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-8000:]}"
    return done.stdout


def checkout(into: Path) -> None:
    """What a clone of this checkout would have, with changes that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            target.write_bytes(source.read_bytes())


def constraints(lock: Path, into: Path) -> Path:
    """The lock's versions without its hashes, which pip would ask of our own wheel too."""
    pinned = re.findall(r"^([A-Za-z0-9_.-]+==[^ ;\\]+)", lock.read_text(), re.MULTILINE)
    into.write_text("\n".join(pinned) + "\n")
    return into
