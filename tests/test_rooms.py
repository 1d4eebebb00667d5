"""The walls between the rooms: what a file may know, held as forbidden contracts, indirect ones too.

``ROOMS`` is the design's table. A room may import itself, the leaves and what its row names; everything
else is forbidden, also where it is reached through a third module of that same room or leaf. What an
allowed neighbour imports in turn is the neighbour's own row.

Two rows are wider than "engine, manage, security, leaves, Proton", and why:

- *amqp* implements the ports of the pure rooms (``flow.ledger.Port``, ``queues.dispatch.Consumer``)
  and holds their values (``Account``, ``Window``, ``Entry``): the wire has to know those types to be
  compiled against them. It may not know how they decide: no gate, no share, no queue. Filters come in an
  AMQP terminus; what they mean is ``queues.filters``'.
- *policy* and *settings* resolve to ``flow.limits``' values, so that no second class has the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent

LEAVES = (
    *("errors", "units", "message", "bodyscan", "codes", "yamlsource", "fields", "storage", "records"),
    *("loggers", "saslframes", "tlsstream", "tlssettings", "networks"),
)
VIEWS = (
    "manage.views",
    "manage.survey",
    "manage.conduits",
    "manage.attributes",
    "manage.model",
    "manage.process",
)

ROOMS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "units": (),
    "message": (),
    "codes": (),
    "saslframes": ("message",),
    "networks": (),
    "tlsstream": ("errors",),
    "tlssettings": ("fields", "units"),
    "bodyscan": ("message",),
    "large": ("flow", "queues.queue", *LEAVES),
    "fields": ("units",),
    "loggers": ("fields", "units"),
    "logs": LEAVES,
    "yamlsource": ("errors",),
    "endpoints": LEAVES,
    "conduits": LEAVES,
    "connectionlimits": ("endpoints", *LEAVES),
    "bridge": ("engine", "node", "queues.queue", *LEAVES),
    "awaiting": ("engine", "node", "flow.ledger", "flow.limits", *LEAVES),
    "flow": LEAVES,
    "queues": LEAVES,
    "storage": (),
    "records": LEAVES,
    "machine": (),
    "asking": (),
    "owned": (),
    "heap": (),
    "notify": (),
    "node": ("flow", "queues", "passage", "bridge", "awaiting", "large", *LEAVES),
    "storing": ("flow", "queues", "node", *LEAVES),
    "passage": ("flow", "queues", "node", "engine", *LEAVES),
    "paging": ("engine", "node", "large", "passage", "queues", "flow.gate", *LEAVES),
    "events": ("engine", "node", "flow.gate", *LEAVES),
    "engine": ("flow", "queues", "node", "paging", "passage", "bridge", "storing", "large", *LEAVES),
    "recovery": ("engine", "node", "large", "queues.spool", "store", "manage", *LEAVES),
    "store": LEAVES,
    "policy": ("flow.limits", "flow.vocabulary", *LEAVES),
    "settings": ("flow.limits", "endpoints", "conduits", "connectionlimits", "security.vocabulary", *LEAVES),
    "security": LEAVES,
    "amqp": (
        *("engine", "node", "manage", "security", "settings", "flow.limits", "flow.window"),
        *(
            "connectionlimits",
            "flow.adaptive",
            "flow.slow",
            "flow.ledger",
            "queues.dispatch",
            "queues.queue",
            "queues.filters",
            "owned",
            "asking",
            *LEAVES,
        ),
    ),
    "manage": (
        *("engine", "node", "bridge", "conduits", "policy", "flow", "queues", "store", "security", *LEAVES),
    ),
    "advise": ("engine", "node", "flow", "queues", *LEAVES),
    "http": (
        *(
            "manage.listing",
            "manage.ordering",
            "manage.versions",
            "manage.bindings",
            "manage.bridges",
            "manage.policies",
        ),
        *("manage.entities", "manage.samples", "manage.tracing", "manage.acting", "manage.authority"),
        "security",
        *VIEWS,
        *LEAVES,
    ),
    "client": ("owned", *LEAVES),
    "routes": ("client", "conduits", *LEAVES),
    "channels": (
        *("engine", "node", "awaiting", "conduits", "flow", "queues.dispatch", "queues.queue", *LEAVES),
    ),
    "conducting": (
        *("amqp.reactor", "routes", "channels", "manage", "conduits", "flow.limits", "node", "settings"),
        "security",
        *LEAVES,
    ),
    "cli": (
        *("client", "server", "advise", "settings", "policy", "store", "events.schema", *VIEWS, *LEAVES),
        *("logs", "manage.loglevels", "conduits", "connectionlimits", "flow.vocabulary", "security"),
    ),
    "spark": (),
    "jobs": ("advise", "cli.arguments", "cli.advise", "spark", "flow.limits", *LEAVES),
    "server": (
        *("amqp", "http", "manage", "engine", "node", "storing", "flow", "queues", "store", "events"),
        *("machine", "heap", "notify", "recovery", "conducting", "asking", "logs"),
        *("policy", "security", "settings", "endpoints", *LEAVES),
    ),
}
# Only these files of the command line may reach the broker itself; all others speak to one over the wire.
SERVING = {"cli.serve", "cli.schema", "cli.reference", "cli.acl"}
PROTON_ROOMS = {"amqp", "client", "spark", "owned"}
# These compose rooms that know Proton and import none of it themselves.
BESIDE_PROTON = {"server", "cli", "conducting", "routes", "jobs"}
NO_CLOCK = {
    *(
        "flow",
        "queues",
        "node",
        "storing",
        "paging",
        "passage",
        "bridge",
        "awaiting",
        "engine",
        "storage",
        "message",
        "codes",
        "units",
    ),
    *("bodyscan", "large"),
}
CLOCKS = {"time", "datetime", "socket", "select", "threading", "os", "logging", "asyncio"}


@dataclass(frozen=True)
class Import:
    """One module of ours that imports another, or something outside."""

    importer: str
    imported: str
    place: str


def room_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def imports() -> tuple[Import, ...]:
    """Every import in the package, those of the compiled files included."""
    return (*python_imports(), *compiled_imports())


def python_imports() -> Iterator[Import]:
    graph = grimp.build_graph("broker", include_external_packages=True, cache_dir=None)
    for module in sorted(graph.modules):
        if not module.startswith("broker."):
            continue
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            details = graph.get_import_details(importer=module, imported=imported)
            place = f"{module}:{details[0]['line_number']}" if details else module
            yield Import(module.removeprefix("broker."), imported.removeprefix("broker."), place)


IMPORT_LINE = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?c?import\s+([\w., ()*]+)", re.MULTILINE)


def compiled_imports() -> Iterator[Import]:
    """``import`` and ``cimport`` lines of .pyx and .pxd files, which no Python parser reads."""
    for path in sorted((ROOT / "broker").rglob("*.p[yx][xd]")):
        importer = ".".join(path.relative_to(ROOT / "broker").with_suffix("").parts)
        for match in IMPORT_LINE.finditer(path.read_text()):
            package, names = (
                match[1],
                [name.split()[0] for name in re.split(r"[,()]", match[2]) if name.strip()],
            )
            line = path.read_text()[: match.start()].count("\n") + 1
            for name in names:
                full = (
                    f"{package}.{name}"
                    if package in ("broker", "broker.client", "broker.amqp")
                    else package or name
                )
                yield Import(importer, full.removeprefix("broker."), f"{path.relative_to(ROOT)}:{line}")


def ours() -> set[str]:
    return {path.stem if path.is_file() else path.name for path in (ROOT / "broker").iterdir()} - {"__init__"}


def is_allowed(importer: str, imported: str) -> bool:
    room = room_of(importer)
    if room == room_of(imported) or imported == "broker":
        return True
    if room == "cli" and room_of(imported) in ("server", "settings", "policy") and importer not in SERVING:
        return False
    return any(imported == allowed or imported.startswith(f"{allowed}.") for allowed in ROOMS[room])


def test_every_room_is_in_the_table() -> None:
    found = {room_of(item.importer) for item in imports()}
    assert found <= ROOMS.keys(), f"say in ROOMS what {found - ROOMS.keys()} may import"


def test_the_compiled_files_are_read() -> None:
    found = {(item.importer, item.imported) for item in compiled_imports()}
    assert ("amqp.wire", "flow.ledger") in found
    assert ("engine", "queues.queue") in found
    assert ("amqp.wire", "codes") in found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_its_row_says(room: str) -> None:
    inside = [
        item for item in imports() if room_of(item.importer) == room and room_of(item.imported) in ours()
    ]
    broken = [
        f"{item.place} imports {item.imported}"
        for item in inside
        if not is_allowed(item.importer, item.imported)
    ]
    assert broken == []


# --- forbidden however it is reached

FORBIDDEN = [
    ("flow", "queues"),
    ("queues", "flow"),
    ("flow", "engine"),
    ("queues", "engine"),
    ("engine", "amqp"),
    ("engine", "manage"),
    ("engine", "policy"),
    ("engine", "store"),
    ("engine", "settings"),
    ("policy", "engine"),
    ("policy", "settings"),
    ("store", "engine"),
    ("manage", "amqp"),
    ("manage", "http"),
    ("manage", "cli"),
    ("manage", "server"),
    ("amqp", "http"),
    ("amqp", "cli"),
    ("amqp", "server"),
    ("amqp", "client"),
    ("http", "amqp"),
    ("http", "cli"),
    ("client", "engine"),
    ("client", "amqp"),
    ("client", "manage"),
    ("client", "settings"),
    ("server", "cli"),
    ("security", "engine"),
    ("security", "amqp"),
    ("security", "manage"),
    ("security", "settings"),
    ("spark", "engine"),
    *((leaf, "engine") for leaf in LEAVES),
    *((leaf, "flow") for leaf in LEAVES),
]


def reach(start: str) -> dict[str, tuple[str, ...]]:
    """Every module a room reaches, each with one way to it."""
    ways: dict[str, tuple[str, ...]] = {
        item.importer: () for item in imports() if room_of(item.importer) == start
    }
    pending = list(ways)
    while pending:
        module = pending.pop()
        for item in imports():
            if item.importer == module and item.imported not in ways:
                ways[item.imported] = (*ways[module], item.place)
                pending.append(item.imported)
    return ways


@pytest.mark.parametrize(("room", "other"), FORBIDDEN)
def test_a_wall_holds_indirectly_too(room: str, other: str) -> None:
    through = {module: way for module, way in reach(room).items() if room_of(module) == other}
    assert through == {}


@pytest.mark.parametrize("room", sorted(ROOMS.keys() - PROTON_ROOMS - {"server", "cli"}))
def test_proton_stays_in_its_rooms(room: str) -> None:
    """The server composes and the command line calls the client; neither imports Proton itself."""
    assert [
        item.place for item in imports() if room_of(item.importer) == room and is_proton(item.imported)
    ] == []
    if room not in BESIDE_PROTON:
        assert [module for module in reach(room) if is_proton(module)] == []


def is_proton(module: str) -> bool:
    return room_of(module) in ("proton", "cproton", "cproton_ffi")


@pytest.mark.parametrize("room", sorted(NO_CLOCK))
def test_the_pure_rooms_know_no_clock_no_disk_and_no_socket(room: str) -> None:
    known = [
        item for item in imports() if room_of(item.importer) == room and room_of(item.imported) in CLOCKS
    ]
    assert [item.place for item in known] == []


def test_the_wire_knows_how_no_decision_is_made() -> None:
    deciding = ("flow.gate", "flow.share", "flow.deadlock", "policy", "store")
    broken = [
        item.place
        for item in imports()
        if room_of(item.importer) == "amqp" and item.imported.startswith(deciding)
    ]
    assert broken == []


def test_a_fallen_wall_would_be_noticed() -> None:
    assert not is_allowed("flow.gate", "queues.queue")
    assert not is_allowed("amqp.wire", "flow.gate")
    assert not is_allowed("cli.stat", "server")
    assert is_allowed("cli.serve", "server")
    assert is_allowed("amqp.wire", "flow.ledger")
