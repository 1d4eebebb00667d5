"""Small files of a data directory of cells: written whole or not at all, and to the disk."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and to the disk. OSError where it can't be."""
    made = path.with_name(f".{path.name}")
    with made.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder. OSError where they can't be."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
