"""The layers: a package imports what stands below it, never upwards, never sideways.

Modules are judged by where they are going to stand (``places.py``). ``BREACHES`` are today's, one line each;
the list may only shrink: one that is mended has to be struck out.
"""

from __future__ import annotations

from functools import cache

from tests.places import PLACES
from tests.test_rooms import imports

# Loose modules that everybody may import.
LEAVES = {"errors", "units", "loggers", "constants"}
BELOW_ENGINE = ("codec", "config", "flow", "queues", "store")
FACES = (*BELOW_ENGINE, "engine", "security", "client", "manage")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "codec": (),
    "config": (),
    "flow": (),
    "queues": ("codec",),
    "store": ("codec",),
    "engine": BELOW_ENGINE,
    "security": BELOW_ENGINE,
    "client": ("codec", "security"),
    "manage": (*BELOW_ENGINE, "engine", "security"),
    "amqp": FACES,
    "http": FACES,
    "forwarding": FACES,
    "server": (*FACES, "amqp", "http", "forwarding"),
    "cli": ("client", "config", "manage", "store", "codec"),
    "pyspark_sluice": ("codec", "client"),
}
# Of these packages a layer sees one module, the port or the table.
NARROW = {("engine", "store"): {"store.port", "store.records"}, ("engine", "config"): {"config.thresholds"}}
# The one verb that starts a broker.
SERVING = "cli.verbs.serve"

BREACHES: frozenset[tuple[str, str]] = frozenset(
    {
        ("amqp.later", "asking"),
        ("amqp.management", "asking"),
        ("cli.acl", "security.acl"),
        ("cli.acl", "security.identity"),
        ("cli.acl", "security.rules"),
        ("cli.acl", "security.users"),
        ("cli.acl", "security.usersfile"),
        ("cli.certs", "security.devcerts"),
        ("cli.schema", "security.rules"),
        ("cli.users", "security.users"),
        ("cli.users", "security.usersfile"),
        ("client.codec", "owned"),
        ("conducting", "amqp.reactor"),
        ("jobs.aggregate", "cli.arguments"),
        ("jobs.capacity_report", "advise.candidates"),
        ("jobs.capacity_report", "advise.picture"),
        ("jobs.capacity_report", "advise.trace"),
        ("jobs.flow_capacity", "advise.candidates"),
        ("jobs.flow_capacity", "cli.advise"),
        ("jobs.flow_capacity", "cli.arguments"),
        ("jobs.ingest", "cli.arguments"),
        ("jobs.loads", "advise.candidates"),
        ("jobs.loads", "advise.demand"),
        ("jobs.loads", "advise.history"),
        ("jobs.loads", "advise.replay"),
        ("jobs.loads", "advise.trace"),
        ("jobs.loads", "flow.limits"),
        ("jobs.sizing", "advise.candidates"),
        ("jobs.trials", "advise.candidates"),
        ("jobs.trials", "advise.replay"),
        ("loggers", "fields"),
        ("queues.scan", "queues.spool"),
    }
)


@cache
def places() -> dict[str, str]:
    """Where today's modules are going to stand."""
    return {
        old: f"{package}.{name}" if package else name
        for package, modules in PLACES.items()
        for old, name in modules.items()
    }


def package_of(place: str) -> str:
    return place.partition(".")[0]


def module_of(imported: str) -> str:
    """Of a name that is imported, the module it stands in; itself where that isn't ours."""
    while imported not in places() and "." in imported:
        imported = imported.rpartition(".")[0]
    return imported


def is_breach(importer: str, imported: str) -> bool:
    here, there = package_of(importer), package_of(imported)
    if there in LEAVES or here == there:
        return False
    if here in LEAVES:
        return True
    if importer == SERVING and there in ("server", "config"):
        return False
    narrow = NARROW.get((here, there))
    return there not in MAY_IMPORT[here] or (narrow is not None and imported not in narrow)


def breaches() -> set[tuple[str, str]]:
    found = set()
    for item in imports():
        importer, imported = module_of(item.importer), module_of(item.imported)
        if (
            importer in places()
            and imported in places()
            and is_breach(places()[importer], places()[imported])
        ):
            found.add((importer, imported))
    return found


def test_every_module_has_its_place() -> None:
    modules = {item.importer for item in imports()}
    packages = {module.rpartition(".")[0] for module in modules}
    homeless = modules - places().keys() - packages
    assert {module for module in homeless if not module.endswith("__init__")} == set()
    assert len(set(places().values())) == len(places()), "two modules of one name"


def test_nothing_is_imported_upwards_or_sideways_but_what_the_list_has() -> None:
    assert breaches() == BREACHES
