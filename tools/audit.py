"""Known vulnerabilities in what requirements.lock names: `python -m tools.audit [--database FILE] [LOCK
...]`.

With ``--database`` from a file, on a machine without a network: the zip of all advisories on PyPI's packages
in the OSV format, or a directory of its JSON files, fetched where there is one. Else `pip-audit` asks its
service;
where that can't be reached the check is skipped, and says so. Exit status 1 for vulnerabilities, 2 where the
check itself failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tools.sbom import LOCK, Locked, locked, normal

FOUND, FAILED = 1, 2
# What pip-audit says where nobody answers.
UNREACHABLE = (
    "ConnectionError",
    "ServiceError",
    "Timeout",
    "Max retries",
    "HTTPError",
    "resolve",
    "unreachable",
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.audit")
    parser.add_argument("--database", type=Path, metavar="FILE", help="advisories in the OSV format")
    parser.add_argument("locks", type=Path, nargs="*", default=[LOCK], metavar="LOCK")
    args = parser.parse_args(arguments)
    if args.database is None:
        return max(_asked(lock) for lock in args.locks)
    advisories = list(_advisories(args.database))
    if not advisories:
        print(f"audit: {args.database} holds no advisories", file=sys.stderr)
        return FAILED
    packages = [each for lock in args.locks for each in locked(lock.read_text())]
    found = sorted({line for each in packages for line in matching(each, advisories)})
    print(
        "\n".join(
            (*found, f"audit: {len(packages)} packages, {len(advisories)} advisories, {len(found)} apply")
        )
    )
    return FOUND if found else 0


def matching(package: Locked, advisories: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each advisory that holds for the version that is locked."""
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        if any(_is_affected(package, each) for each in advisory.get("affected", [])):
            yield f"{package.name} {package.version}: {advisory['id']}: {advisory.get('summary', '')}"


def _is_affected(package: Locked, affected: dict[str, Any]) -> bool:
    named = affected.get("package", {})
    if named.get("ecosystem") != "PyPI" or normal(named.get("name", "")) != package.name:
        return False
    return package.version in affected.get("versions", []) or _is_within(package.version, affected)


def _is_within(version: str, affected: dict[str, Any]) -> bool:
    """Whether a range says so: from `introduced` on, before `fixed`, up to `last_affected`."""
    here = Version(version)
    for each in affected.get("ranges", []):
        inside = False
        for event in each.get("events", []) if each.get("type") == "ECOSYSTEM" else []:
            (kind, edge), *_ = event.items()
            if kind == "introduced" and (edge == "0" or here >= _version(edge)):
                inside = True
            elif (kind == "fixed" and here >= _version(edge)) or (
                kind == "last_affected" and here > _version(edge)
            ):
                inside = False
        if inside:
            return True
    return False


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _advisories(database: Path) -> Iterator[dict[str, Any]]:
    if database.is_dir():
        for path in sorted(database.rglob("*.json")):
            yield json.loads(path.read_text())
        return
    with zipfile.ZipFile(database) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def _asked(lock: Path) -> int:
    """What pip-audit finds, if its service answers."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            "--requirement",
            str(lock),
            "--require-hashes",
            "--disable-pip",
            "--progress-spinner",
            "off",
        ]
        command += ["--format", "json", "--output", str(report)]
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pip_audit", *command],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"audit: skipped for {lock.name}: the service did not answer in time", file=sys.stderr)
            return 0
        if not report.exists():
            said = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
            if any(word in ended.stderr for word in UNREACHABLE):
                print(
                    f"audit: skipped for {lock.name}: the service can't be reached ({said[-1][:200]})",
                    file=sys.stderr,
                )
                return 0
            print(f"audit: pip-audit failed on {lock.name}: {said[-1][:200]}", file=sys.stderr)
            return FAILED
        found = json.loads(report.read_text())["dependencies"]
    faults = [(each, fault) for each in found for fault in each.get("vulns", [])]
    for each, fault in faults:
        fixed = ", ".join(fault["fix_versions"]) or "no version"
        print(f"{each['name']} {each['version']}: {fault['id']}, fixed in {fixed}")
    print(f"audit: {lock.name}: {len(found)} packages, {len(faults)} known vulnerabilities")
    return FOUND if faults else 0


if __name__ == "__main__":
    sys.exit(main())
