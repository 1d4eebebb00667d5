"""The reference of every setting as Markdown: docs/configuration.md, made from the tables the parsers use."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from broker.cli.terminal import changes
from broker.cli.verbs import serve
from broker.config.broker import ALIASES, FIELDS
from broker.config.connection_limits import LIMIT_FIELDS
from broker.config.fields import Field, Several
from broker.config.forwards import BRIDGE_FIELDS, CHANNEL_FIELDS, ROUTE_FIELDS
from broker.config.policy_schema import AUTO_CREATE, MATCH, POLICY_FIELDS
from broker.config.sources import PREFIX
from broker.config.synonyms import ARGUMENTS

INTRODUCTION = """\
# Configuration

Written by `make docs` from the tables that the parsers use; `sluice schema reference` prints it.

A setting can stand in the file (`etc/broker.yaml`, or the file that `--config` or `SLUICE_CONFIG` names), in
the environment and, for some settings, on the command line of `sluice serve`. A flag beats a variable, which
beats the file. `sluice serve --check` reports every error, with file, line and column. Sizes take a number of
bytes or one with `B`, `KB`, `MB` or `GB` (1 KB is 1024 B), durations `ms`, `s`, `m` or `h`; a list in a
variable has commas between its items. `sluice schema broker` and `sluice schema policies` are JSON Schemas
for editors.

On `SIGHUP` the file and the policies are read again. Policies, `flow.*` defaults, `auto_create`, `bridges`,
`routes`, `channels`, `connection_limits`, `limits.max_connections_per_*` and `security.*` with the files it
names take effect at once and no connection is dropped, except those of deleted users; the other settings take
a restart.
"""

BROKER = """\
## The broker

`SLUICE_CONFIG` names the file, `SLUICE_BROKER` the broker that the other commands talk to. A dot is a level
in the file: `limits.max_links` is `max_links` below `limits:`.
"""

LIMITS = """\
### connection_limits

Each item is for one of `user`, `group`, `listener` and `virtual_host`. For a user the first item with its
name or one of its groups holds, and without such an item `limits.max_connections_per_user`; for a listener
and a virtual host likewise.
"""

NODES = """\
## Nodes: policies

These settings are for queues, topics and subscriptions, in files of `policies`; where several patterns
match, each setting comes from the most specific one that has it. The same keys are arguments of a declaration
(`sluice config add queue NAME --argument KEY=VALUE`, `CREATE` of `$management`); the names of Qpid's tools
are accepted there as well. `sluice explain ADDRESS` shows the effective values and their origins.
"""

CONDUITS = """\
## Bridges, routes and channels

Each is an item of its list in the broker's file: [concepts](concepts.md#bridges-routes-and-channels).
"""


def reference() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            BROKER,
            _table(
                ("file", "environment", "flag", "type", "default", "what it does"), map(_setting, _broker())
            ),
            LIMITS,
            _table(("key", "type", "default", "what it does"), map(_plain, LIMIT_FIELDS)),
            NODES,
            _table(
                ("key", "Qpid's argument or flag", "type", "default", "what it does"), map(_key, _policy())
            ),
            CONDUITS,
            *(
                f"### {name}\n\n" + _table(("key", "type", "default", "what it does"), map(_plain, rows))
                for name, rows in (
                    ("bridges", BRIDGE_FIELDS),
                    ("routes", ROUTE_FIELDS),
                    ("channels", CHANNEL_FIELDS),
                )
            ),
        ]
    )


def variable(name: str) -> str:
    """The environment's name of a setting."""
    return PREFIX + name.replace(".", "_").upper()


def flags() -> dict[str, str]:
    """The flag of each setting that has one."""
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    found = {ALIASES.get(action.dest, action.dest): action.option_strings[-1] for action in parser._actions}
    return {name: flag for name, flag in found.items() if name in FIELDS}


def _broker() -> Iterable[tuple[Field, str]]:
    known = flags()
    return ((row, known.get(name, "")) for name, row in FIELDS.items())


def _setting(item: tuple[Field, str]) -> tuple[str, ...]:
    row, flag = item
    mappings = isinstance(row.type, Several) and row.type.item.schema().get("type") == "object"
    of_environment = "" if mappings else f"`{variable(row.name)}`"
    return (f"`{row.name}`", of_environment, f"`{flag}`" if flag else "", *_told(row))


def _policy() -> Iterable[Field]:
    return POLICY_FIELDS.values()


def _key(row: Field) -> tuple[str, ...]:
    """The flags of `sluice config` are qpid-config's."""
    theirs = [name for name, key in (*ARGUMENTS.items(), *_config_flags()) if key == row.name]
    # A policy alone has these two.
    assert row.name not in (MATCH.name, AUTO_CREATE.name) or not theirs
    return f"`{row.name}`", ", ".join(f"`{name}`" for name in theirs), *_told(row)


def _config_flags() -> Iterable[tuple[str, str]]:
    for flag, name in (*changes.FLAGS.items(), ("--durable", "durable")):
        yield flag, ARGUMENTS.get(name, name)


def _plain(row: Field) -> tuple[str, ...]:
    return f"`{row.name}`", *_told(row)


def _told(row: Field) -> tuple[str, str, str]:
    return row.type.label, row.default, row.meaning


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A bar inside a cell would end it."""
    lines = [heading, ("---",) * len(heading), *rows]
    return (
        "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        + "\n"
    )
