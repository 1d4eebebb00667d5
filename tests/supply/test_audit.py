"""Known vulnerabilities, matched without a network."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import audit
from tools.sbom import Locked

HASH = " --hash=sha256:" + "0" * 64


def advisory(
    name: str, *events: dict[str, str], versions: tuple[str, ...] = (), **more: object
) -> dict[str, Any]:
    """One in the OSV format."""
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "versions": list(versions),
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "PYSEC-1", "summary": "it falls", "affected": [affected], **more}


@pytest.mark.parametrize(
    ("version", "found", "holds"),
    [
        ("1.5", advisory("some-thing", {"introduced": "0"}, {"fixed": "1.6"}), True),
        ("1.6", advisory("some-thing", {"introduced": "0"}, {"fixed": "1.6"}), False),
        ("1.10", advisory("some-thing", {"introduced": "1.9"}), True),
        ("1.10", advisory("some-thing", {"introduced": "0"}, {"last_affected": "1.9"}), False),
        ("1.0", advisory("Some_Thing", versions=("1.0",)), True),
        ("1.0", advisory("another", versions=("1.0",)), False),
        ("1.0", advisory("some-thing", versions=("1.0",), withdrawn="2020-01-01T00:00:00Z"), False),
    ],
)
def test_which_hold(version: str, found: dict[str, Any], holds: bool) -> None:
    assert bool(list(audit.matching(Locked("some-thing", version), [found]))) == holds


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(f"some-thing==1.0{HASH}\nfine==2.0{HASH}\n")
    return path


def test_a_zip_of_advisories(lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "all.zip"
    with zipfile.ZipFile(database, "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(advisory("some-thing", versions=("1.0",))))
    assert audit.main(["--database", str(database), str(lock)]) == audit.FOUND
    said = capsys.readouterr().out
    assert "some-thing 1.0: PYSEC-1: it falls" in said
    assert "2 packages, 1 advisories, 1 apply" in said


def test_a_directory_of_them(lock: Path, tmp_path: Path) -> None:
    folder = tmp_path / "advisories"
    folder.mkdir()
    (folder / "PYSEC-1.json").write_text(json.dumps(advisory("some-thing", versions=("0.9",))))
    assert audit.main(["--database", str(folder), str(lock)]) == 0


def test_none_at_all_is_no_check(lock: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert audit.main(["--database", str(tmp_path / "empty"), str(lock)]) == audit.FAILED


def test_without_a_network_it_is_skipped_and_says_so(
    lock: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert audit.main([str(lock)]) == 0
    assert "skipped" in capsys.readouterr().err
