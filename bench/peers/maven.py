"""Distributions of brokers fetched with Maven, once, and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import MissingError
from tools.archives import unpack

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
            unpack(next(folder.glob("*.tar.gz")), folder / "unpacked")
            (folder / "unpacked").rename(kept)
    return kept


def _copy(coordinates: str, folder: Path) -> None:
    words = ["dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"]
    ended = _maven(words, folder, coordinates)
    if ended.returncode or not any(folder.glob("*.tar.gz")):
        raise MissingError(_refusal(ended, coordinates))


def _maven(words: Sequence[str], folder: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["mvn", "-q", "-B", *words],
            capture_output=True, text=True, timeout=FETCH_S, cwd=folder, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"Maven did not bring {wanted} within {FETCH_S:g} s") from error


def _refusal(ended: subprocess.CompletedProcess[str], wanted: str) -> str:
    reason = next((line for line in ended.stdout.splitlines() if "ERROR" in line), ended.stderr)
    # Without the address it looked at, which differs from machine to machine.
    return f"Maven has no {wanted}: {reason.partition(' (http')[0].strip()[:160]}"


def jars(name: str, *coordinates: str, without: Sequence[str] = ()) -> Path:
    """Return a folder with artifacts and all they need at run time, but for groups that are left out.

    Raises MissingError.
    """
    kept = cache() / name
    if not kept.is_dir():
        if shutil.which("mvn") is None:
            raise MissingError("mvn is not on the PATH")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            folder = Path(made)
            (folder / "pom.xml").write_text(_project(coordinates))
            words = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
            words += [f"-DexcludeGroupIds={','.join(without)}"] if without else []
            ended = _maven(words, folder, name)
            if ended.returncode or not any((folder / "jars").glob("*.jar")):
                raise MissingError(_refusal(ended, ", ".join(coordinates)))
            (folder / "jars").rename(kept)
    return kept


def _project(coordinates: Sequence[str]) -> str:
    """A project that needs these artifacts and is nothing itself."""
    needs = ""
    for each in coordinates:
        group, artifact, version = each.split(":")
        needs += f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        needs += f"<version>{version}</version></dependency>"
    about = "<modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId>"
    return f"<project>{about}<version>1</version><dependencies>{needs}</dependencies></project>"


def beneath(folder: Path, program: str) -> Path:
    """The broker's own home: the folder in which ``program`` is. Raises MissingError."""
    found = next(folder.glob(f"**/{program}"), None)
    if found is None:
        raise MissingError(f"{program} is not in {folder.name}")
    return found.parent.parent
