"""A root directory of one's own over this machine's: what is written in it is seen nowhere else.

An overlay file system in a mount name space of its own, entered with chroot(1); needs root. It stands in for
a container's base image: same commands, same paths, but this machine's Debian below them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.needs import program
from tests.packaging.clean import BUILD_S

ENTER = """
set -e
export PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs tmpfs {work}
mkdir {work}/upper {work}/inner {work}/root
mount -t overlay overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/inner {work}/root
cd {work}/root
mount --rbind /proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
mkdir -p tmp/cache tmp/context tmp/home
mount --bind {cache} tmp/cache
mount --bind {context} tmp/context
exec chroot . bash -e /tmp/context/script.sh
"""


class Chroot:
    """``context`` is at /tmp/context inside, pip's cache at /tmp/cache."""

    def __init__(self, folder: Path, cache: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root for a root directory of its own")
        self.unshare = program("unshare")
        program("setpriv")
        self.work, self.context, self.cache = folder / "work", folder / "context", cache
        self.work.mkdir()
        self.context.mkdir()

    def run(self, script: str, env: Mapping[str, str]) -> str:
        """Run a script in it; AssertionError with what it said where it failed."""
        (self.context / "script.sh").write_text(script)
        names = {"work": self.work, "cache": self.cache, "context": self.context}
        enter = ENTER.format(**{name: shlex.quote(str(path)) for name, path in names.items()})
        done = subprocess.run(
            [self.unshare, "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", enter],
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_S,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout
