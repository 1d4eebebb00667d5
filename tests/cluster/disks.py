"""Disks of a machine of a cell: each an ext4 file system in a file, mounted in a namespace of the run's own.

A machine is one server of the log and one member. ``fill`` leaves no block free. ``PowerCut`` loses all that
was not yet written to the device: it keeps the devices as they are at that moment, with file systems mounted
and at work, and puts them back afterwards, so that a file system is opened from its journal alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

SIZE = 256 << 20
BLOCK = 4096
# Set once this process has mounts of its own.
INSIDE = "SLUICE_MOUNTS"


def missing() -> str:
    """Return the reason why no disks can be had here; empty where they can."""
    if os.geteuid() != 0:
        return "disks of a machine need root, to mount them"
    if not Path("/dev/loop-control").exists():
        return "disks of a machine need loop devices"
    return ""


def enter(module: str) -> None:
    """Run this module again, with the same arguments, where mounts are seen by it and its children alone.

    They are gone with the last of those processes, whatever ends them. Returns where that is so already.
    """
    if INSIDE in os.environ:
        return
    words = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(words[0], words, os.environ | {INSIDE: "1"})


class Disk:
    """One machine's file system, seen at each of ``places``: paths of folders that are made."""

    def __init__(self, image: Path, places: list[Path], size: int = SIZE) -> None:
        self.image = image
        self._root = image.with_suffix(".disk")
        self._places = places
        self._filler = self._root / "filler"
        self._filling: threading.Thread | None = None
        self._filled = threading.Event()
        with image.open("wb") as made:
            made.truncate(size)
        _run("mkfs.ext4", "-q", "-F", str(image))
        self.mount()

    def mount(self) -> None:
        """Make it seen; a file system that wasn't unmounted is recovered from its journal."""
        self._root.mkdir(exist_ok=True)
        _run("mount", "-o", "loop", str(self.image), str(self._root))
        for place in self._places:
            within = self._root / f"{place.parent.name}-{place.name}"
            within.mkdir(exist_ok=True)
            place.mkdir(parents=True, exist_ok=True)
            _run("mount", "--bind", str(within), str(place))

    def unmount(self) -> None:
        """Let nobody see it; its users are gone."""
        self.free()
        for place in self._places:
            with suppress(subprocess.CalledProcessError):
                _run("umount", str(place))
        _run("umount", str(self._root))

    def sync(self) -> None:
        """Write out all that is there."""
        _run("sync", "--file-system", str(self._root))

    def fill(self) -> None:
        """Leave no block free from now on: what others give back is taken at once."""
        self._filled.clear()
        filling = threading.Thread(target=self._fill, daemon=True)
        filling.start()
        self._filling = filling
        self._filled.wait()

    def free(self) -> None:
        """Give back what ``fill`` took, and take no more."""
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.join()
        self._filler.unlink(missing_ok=True)

    def _fill(self) -> None:
        with self._filler.open("wb", buffering=0) as filler:
            while self._filling is not None or not self._filled.is_set():
                with suppress(OSError):
                    while filler.write(bytes(BLOCK)):
                        pass
                self._filled.set()
                time.sleep(0.01)


class PowerCut:
    """What the devices of some machines hold at this moment."""

    def __init__(self, disks: list[Disk]) -> None:
        self._kept = [(disk, disk.image.with_suffix(".kept")) for disk in disks]
        for disk, kept in self._kept:
            _run("cp", "--sparse=always", str(disk.image), str(kept))

    def restore(self) -> None:
        """Put the devices back to that moment, and open them again; their users are gone."""
        for disk, kept in self._kept:
            disk.unmount()
            kept.replace(disk.image)
            disk.mount()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
