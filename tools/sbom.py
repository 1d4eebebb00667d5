"""A software bill of materials: what a broker that was installed from requirements.lock is made of.

`python -m tools.sbom [FILE]` writes CycloneDX 1.6 as JSON. The same lock gives the same bytes: no clock and
no machine is in it. What the lock doesn't say (licenses, who needs whom) is read from the installed packages;
one that isn't installed is listed without.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from dataclasses import dataclass, field
from email.message import Message
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import cast

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
_PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NEEDED = re.compile(r"^([A-Za-z0-9._-]+)(?P<rest>.*)$", re.DOTALL)


@dataclass
class Locked:
    """One package of the lock; ``hashes`` are those of its files, any of which may be installed."""

    name: str
    version: str
    hashes: list[str] = field(default_factory=list)

    @property
    def reference(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(text: str) -> list[Locked]:
    """The packages of a lock file, by name. ValueError where one has no hash."""
    found: list[Locked] = []
    for line in text.splitlines():
        match = _PINNED.match(line)
        if match is not None:
            found.append(Locked(normal(match["name"]), match["version"]))
        if found:
            found[-1].hashes += _HASH.findall(line)
    bare = [each.name for each in found if not each.hashes]
    if bare:
        raise ValueError(f"without a hash: {', '.join(bare)}")
    return sorted(found, key=lambda each: each.name)


def normal(name: str) -> str:
    """A package's name as package URLs have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(lock: str, project: dict[str, object]) -> dict[str, object]:
    """The document for a lock file's text and the `project` table of pyproject.toml."""
    packages = locked(lock)
    root = Locked(normal(str(project["name"])), str(project["version"]))
    known = {each.name: each.reference for each in packages}
    direct = [name for each in _list(project, "dependencies") if (name := _needed(each)) in known]
    dependencies = [{"ref": root.reference, "dependsOn": sorted(known[name] for name in direct)}]
    for each in packages:
        needs = {known[name] for name in _requirements(each) if name in known}
        dependencies.append({"ref": each.reference, "dependsOn": sorted(needs)})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(bytes=sha256(lock.encode()).digest()[:16], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                **_component(root, "application"),
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": [
            {**_component(each, "library"), **_licenses(each), **_files(each)} for each in packages
        ],
        "dependencies": dependencies,
    }


def _component(package: Locked, kind: str) -> dict[str, object]:
    return {
        "type": kind,
        "bom-ref": package.reference,
        "name": package.name,
        "version": package.version,
        "purl": package.reference,
    }


def _files(package: Locked) -> dict[str, object]:
    """Which file was installed depends on the machine, so their hashes are properties and not its own."""
    return {"properties": [{"name": "sluice:lock:sha256", "value": each} for each in sorted(package.hashes)]}


def _installed(package: Locked) -> Message | None:
    try:
        found = cast(Message, metadata.metadata(package.name))
    except metadata.PackageNotFoundError:
        return None
    return found if found["Version"] == package.version else None


def _licenses(package: Locked) -> dict[str, object]:
    found = _installed(package)
    if found is None:
        return {}
    expression = found.get("License-Expression")
    if expression:
        return {"licenses": [{"expression": expression}]}
    names = [
        each.rpartition(" :: ")[2]
        for each in found.get_all("Classifier") or []
        if each.startswith("License ::")
    ]
    said = (found.get("License") or "").strip()
    if not names and said:
        names = [said.splitlines()[0][:100]]
    return {"licenses": [{"license": {"name": each}} for each in names]} if names else {}


def _requirements(package: Locked) -> list[str]:
    found = _installed(package)
    if found is None:
        return []
    return [_needed(each) for each in found.get_all("Requires-Dist") or [] if "extra ==" not in each]


def _needed(requirement: str) -> str:
    match = _NEEDED.match(requirement)
    return normal(match[1]) if match else ""


def _list(table: dict[str, object], key: str) -> list[str]:
    value = table.get(key, [])
    assert isinstance(value, list)
    return [str(each) for each in value]


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = json.dumps(bill(LOCK.read_text(), project), indent=2) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
