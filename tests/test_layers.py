"""The layers: a package imports what stands below it, never upwards, never sideways.

``BREACHES`` are today's, one line each; the list may only shrink: one that is mended has to be struck out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.imports import ROOT, compiled_imports, imports, module_of, modules

# Loose modules that everybody may import.
LEAVES = {"errors", "units", "loggers", "constants"}
BELOW_ENGINE = ("codec", "config", "flow", "queues", "store")
BELOW_AMQP = (*BELOW_ENGINE, "engine", "security", "manage")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "codec": (),
    "config": (),
    "flow": (),
    "queues": ("codec",),
    "store": ("codec",),
    "engine": BELOW_ENGINE,
    "security": BELOW_ENGINE,
    "cluster": ("codec", "config", "store"),
    "client": ("codec", "security"),
    "manage": (*BELOW_ENGINE, "engine", "security"),
    "amqp": BELOW_AMQP,
    "http": BELOW_AMQP,
    "forwarding": (*BELOW_AMQP, "client"),
    "server": (*BELOW_AMQP, "client", "amqp", "http", "forwarding", "cluster"),
    "cli": ("client", "config", "manage", "security", "store", "codec"),
    # A zip of it is all that Spark's executors need.
    "pyspark_sluice": ("codec", "client"),
    "pyspark_sluice.jobs": ("pyspark_sluice", "codec", "client", "config", "manage", "cli"),
}
# Of these packages the others see only these modules, and what is in them.
NARROW = {
    ("engine", "store"): ("store.port", "store.records"),
    ("engine", "config"): ("config.node",),
    # The message path knows how no decision is made; the loop shares its time out by the one limiter.
    ("amqp", "flow"): (
        *("flow.producer_credit", "flow.connection_budget", "flow.window"),
        *("flow.adaptive", "flow.slow", "flow.rate"),
    ),
    ("amqp", "queues"): ("queues.dispatch", "queues.queue", "queues.filters"),
    ("amqp", "store"): (),
    ("pyspark_sluice.jobs", "config"): ("config.node",),
    ("pyspark_sluice.jobs", "manage"): ("manage.advise",),
    ("pyspark_sluice.jobs", "cli"): ("cli.terminal.arguments",),
}
# The one verb that starts a broker.
SERVING = "cli.verbs.serve"
PROTON = {"proton", "cproton", "cproton_ffi"}
# Packages that may import Proton; ``codec`` where values of any type are decoded.
WITH_PROTON = {"amqp", "client", "pyspark_sluice", "pyspark_sluice.jobs"}
DECODING = {"codec.owned", "codec.sections"}
PURE = {
    "codec.message",
    "codec.bodyscan",
    "codec.bounds",
    "flow",
    "queues",
    "engine",
    "units",
    "constants",
    "store.port",
    "cluster.records",
    "cluster.log",
    "cluster.pipeline",
    "cluster.lease",
    "cluster.fold",
}
CLOCKS = {"time", "datetime", "socket", "select", "threading", "os", "logging", "asyncio"}

BREACHES: frozenset[tuple[str, str]] = frozenset()
# Modules that import each other, which may only get fewer too.
CIRCLES: set[frozenset[str]] = set()


def package_of(module: str) -> str:
    top, _, rest = module.partition(".")
    jobs = top == "pyspark_sluice" and f"{rest}.".startswith("jobs.")
    return f"{top}.jobs" if jobs else top


def is_breach(importer: str, imported: str) -> bool:
    here, there = package_of(importer), package_of(imported)
    if there in LEAVES or here == there:
        return False
    if here in LEAVES:
        return True
    if importer == SERVING and there == "server":
        return False
    seen = NARROW.get((here, there), (there,))
    return there not in MAY_IMPORT[here] or not any(f"{imported}.".startswith(f"{each}.") for each in seen)


def breaches() -> set[tuple[str, str]]:
    return {
        (item.importer, module_of(item.imported))
        for item in imports()
        if "broker" not in (item.importer, item.imported)
        and module_of(item.imported) in modules()
        and is_breach(item.importer, module_of(item.imported))
    }


def test_nothing_is_imported_upwards_or_sideways_but_what_the_list_has() -> None:
    assert breaches() == BREACHES


def test_every_package_has_its_layer() -> None:
    found = {package_of(module) for module in modules()} - {"broker"}
    assert found == {*MAY_IMPORT, *LEAVES}


def test_the_layers_have_no_circle() -> None:
    left = {package: set(below) for package, below in MAY_IMPORT.items()}
    while left:
        lowest = {package for package, below in left.items() if not below & left.keys()}
        assert lowest, f"{sorted(left)} import each other"
        left = {package: below for package, below in left.items() if package not in lowest}


def test_no_modules_import_each_other_but_what_the_list_has() -> None:
    assert {frozenset(circle) for circle in circles()} == CIRCLES


def circles() -> Iterator[set[str]]:
    """Modules that import each other in a loop, those for type checkers included."""
    onto: defaultdict[str, set[str]] = defaultdict(set)
    for item in imports():
        if item.imported in modules():
            onto[item.importer].add(item.imported)
    ways = {module: _reached(module, onto) for module in sorted(onto)}
    left = set(ways)
    while left:
        start = min(left)
        circle = {module for module in ways[start] if start in ways.get(module, ())}
        left -= {start, *circle}
        if circle - {start}:
            yield circle


def _reached(start: str, onto: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [*onto.get(start, ())]
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += onto.get(module, ())
    return found


def test_the_compiled_files_are_read() -> None:
    found = {(item.importer, item.imported) for item in compiled_imports()}
    assert ("amqp.links.producer", "flow.producer_credit") in found
    assert ("engine.intake", "queues.queue") in found
    assert ("amqp.links.producer", "constants") in found


def test_proton_stays_in_its_packages() -> None:
    found = {item.importer for item in imports() if package_of(item.imported) in PROTON}
    assert {module for module in found if package_of(module) not in WITH_PROTON} == DECODING


@pytest.mark.parametrize(
    "package", ["config", "flow", "queues", "store", "engine", "security", "cluster", "manage", "http"]
)
def test_proton_is_not_reached_through_others(package: str) -> None:
    assert {module: way for module, way in reach(package).items() if package_of(module) in PROTON} == {}


def reach(package: str) -> dict[str, tuple[str, ...]]:
    """Every module a package reaches, each with one way to it."""
    ways: dict[str, tuple[str, ...]] = {
        item.importer: () for item in imports() if package_of(item.importer) == package
    }
    pending = list(ways)
    while pending:
        module = pending.pop()
        for item in imports():
            if item.importer == module and item.imported not in ways:
                ways[item.imported] = (*ways[module], item.place)
                pending.append(item.imported)
    return ways


@pytest.mark.parametrize("place", sorted(PURE))
def test_pure_packages_know_no_clock_no_disk_and_no_socket(place: str) -> None:
    known = [
        item.place
        for item in imports()
        if f"{item.importer}.".startswith(f"{place}.") and package_of(item.imported) in CLOCKS
    ]
    assert known == []


def test_a_fallen_wall_would_be_noticed() -> None:
    assert is_breach("flow.gate", "queues.queue")
    assert is_breach("amqp.links.connection", "flow.gate")
    assert is_breach("http.app", "amqp.loop.reactor")
    assert is_breach("cli.verbs.stat", "server.server")
    assert is_breach("errors", "flow.gate")
    assert not is_breach("cli.verbs.serve", "server.server")
    assert not is_breach("amqp.links.connection", "flow.producer_credit")


def public_classes() -> dict[str, set[str]]:
    """Every public class of the broker and the modules it stands in, a .pxd being its module's."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "broker").rglob("*.py*"):
        if path.suffix in (".py", ".pyx"):
            for name in re.findall(r"^(?:cdef )?class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
                found[name].add(str(path.relative_to(ROOT / "broker")))
    return found


def test_a_public_class_name_has_one_meaning() -> None:
    assert {name: places for name, places in public_classes().items() if len(places) > 1} == {}


def test_the_glossary_says_where_each_class_is() -> None:
    text = (ROOT / "docs/design/glossary.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE)
    assert listed
    assert [(name, place) for name, place in listed if place not in public_classes()[name]] == []


def test_few_modules_are_loose() -> None:
    assert {path.stem for path in (ROOT / "broker").glob("*.py")} == {*LEAVES, "__init__"}
