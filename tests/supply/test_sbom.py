"""The software bill of materials: valid CycloneDX, complete, and the same for the same lock."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for
from referencing import Registry, Resource

from tools.sbom import LOCK, ROOT, bill, locked

PROJECT: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return bill(LOCK.read_text(), PROJECT)


def test_it_is_valid(document: dict[str, Any]) -> None:
    folder = resources.files("cyclonedx.schema") / "_res"

    def schema(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text())
        return found

    registry: Registry[Any] = Registry()
    for name in ("spdx", "jsf-0.82"):
        found = Resource.from_contents(schema(name))
        registry = registry.with_resource(f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", found)
    wanted = schema("bom-1.6")
    kind = validator_for(wanted)
    kind(wanted, registry=registry, format_checker=jsonschema.FormatChecker()).validate(document)


def test_it_names_all_that_is_locked(document: dict[str, Any]) -> None:
    pinned = {line.split()[0] for line in LOCK.read_text().splitlines() if "==" in line}
    named = {f"{each['name']}=={each['version']}" for each in document["components"]}
    assert {each.lower().replace("_", "-") for each in pinned} == named


def test_every_component_has_hashes_and_a_license(document: dict[str, Any]) -> None:
    for each in document["components"]:
        assert each["properties"], each["name"]
        assert each.get("licenses"), each["name"]


def test_what_needs_what_is_closed(document: dict[str, Any]) -> None:
    known = {each["bom-ref"] for each in document["components"]}
    root = document["metadata"]["component"]["bom-ref"]
    graph = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    assert graph.keys() == known | {root}
    reached: set[str] = set()
    left = [root]
    while left:
        here = left.pop()
        if here not in reached:
            reached.add(here)
            left += graph[here]
    assert reached - {root} <= known
    direct = {each.partition(">")[0] for each in PROJECT["dependencies"]}  # type: ignore[attr-defined]
    assert len(graph[root]) == len(direct)


def test_it_says_the_same_twice(document: dict[str, Any]) -> None:
    assert bill(LOCK.read_text(), PROJECT) == document


def test_a_package_without_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="without a hash: loose"):
        locked("tight==1.0 --hash=sha256:" + "0" * 64 + "\nloose==2.0\n")


def test_every_lock_has_hashes() -> None:
    for lock in Path(ROOT).glob("requirements*.lock"):
        assert locked(lock.read_text())
