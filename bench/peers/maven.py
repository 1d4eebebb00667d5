"""Distributions of brokers fetched with Maven, once, and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from bench.peers.peer import MissingError

FETCH_S = 300.0


def cache() -> Path:
    """Where they are kept, unpacked."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sluice-peers"


def distribution(group: str, artifact: str, version: str) -> Path:
    """The unpacked folder of ``artifact-version-bin.tar.gz``. Raises MissingError."""
    kept = cache() / f"{artifact}-{version}"
    if not kept.is_dir():
        if shutil.which("mvn") is None:
            raise MissingError("mvn is not on the PATH")
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Beside its last place, so that an interrupted run never leaves half of it there.
        with tempfile.TemporaryDirectory(dir=kept.parent) as name:
            folder = Path(name)
            _copy(f"{group}:{artifact}:{version}:tar.gz:bin", folder)
            with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
                archive.extractall(folder / "unpacked", filter="data")
            (folder / "unpacked").rename(kept)
    return kept


def _copy(coordinates: str, folder: Path) -> None:
    command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}"]
    try:
        ended = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"],
            capture_output=True, text=True, timeout=FETCH_S, cwd=folder, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"Maven did not bring {coordinates} within {FETCH_S:g} s") from error
    if ended.returncode or not any(folder.glob("*.tar.gz")):
        reason = next((line for line in ended.stdout.splitlines() if "ERROR" in line), ended.stderr)
        # Without the address it looked at, which differs from machine to machine.
        raise MissingError(f"Maven has no {coordinates}: {reason.partition(' (http')[0].strip()[:160]}")


def beneath(folder: Path, program: str) -> Path:
    """The broker's own home: the folder in which ``program`` is. Raises MissingError."""
    found = next(folder.glob(f"**/{program}"), None)
    if found is None:
        raise MissingError(f"{program} is not in {folder.name}")
    return found.parent.parent
