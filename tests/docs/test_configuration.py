"""docs/configuration.md is what the command prints, and what it says of variables and flags holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.terminal.reference import flags, reference, variable
from broker.config.broker import FIELDS, load_settings
from broker.config.fields import Several

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
# One value each kind of setting takes.
EXAMPLES = {"true or false": "false", "number": "600", "size": "1 MB", "duration": "5 s", "percentage": "10%"}
WORDS = {
    "listeners": "amqp://127.0.0.1:7777",
    "http": "127.0.0.1:8888",
    "websocket_origins": "https://console.example.org",
    "log_levels": "sluice.amqp=debug",
    "security.mechanisms": "PLAIN,EXTERNAL",
    "security.oauth_algorithms": "RS256,ES512",
    "cells": "4",
    "limits.max_depth": "20",
    "limits.max_selector_depth": "20",
    "virtual_hosts": "one.example.org,two.example.org",
    "tls.ciphers": "ECDHE+AESGCM",
    "cluster.cell": "orders",
    "cluster.member": "a",
    "cluster.engine": "nats://10.0.0.1:4222,tls://10.0.0.2",
    "cluster.engine_monitors": "http://10.0.0.1:8222,http://10.0.0.2:8222",
    "cluster.rank": "2",
    "cluster.log_size": "64 MB",
    "cluster.listen": "127.0.0.1:5690",
    "cluster.advertise": "127.0.0.1:5690",
    "cluster.addresses": "amqp://mq1.example.org,amqps://mq1.example.org",
}
# What a setting needs beside it.
BESIDE = {
    "cluster.": {"SLUICE_CLUSTER_ENGINE": "nats://10.0.0.1:4222"},
    "cluster.margin": {"SLUICE_CLUSTER_TTL": "1m"},
    "cluster.mark": {"SLUICE_CLUSTER_TTL": "1m"},
    "cluster.engine_user": {"SLUICE_CLUSTER_ENGINE_PASSWORD_FILE": "password"},
    "cluster.engine_password_file": {"SLUICE_CLUSTER_ENGINE_USER": "sluice"},
}


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text() == reference(), "make docs"


def test_every_setting_is_on_the_page() -> None:
    text = PAGE.read_text()
    assert [name for name in FIELDS if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("name", FIELDS)
def test_the_variable_sets_it(name: str, tmp_path: Path) -> None:
    row = FIELDS[name]
    if isinstance(row.type, Several) and row.type.item.schema().get("type") == "object":
        assert f"`{variable(name)}`" not in PAGE.read_text()
        return
    words = row.type.schema().get("enum")
    first = str(words[0]) if isinstance(words, list) else str(tmp_path)
    value = WORDS.get(name) or EXAMPLES.get(row.type.label, first)
    beside = [needed for start, needed in BESIDE.items() if start in (name, f"{name.partition('.')[0]}.")]
    environment = {key: each for needed in beside for key, each in needed.items()} | {variable(name): value}
    settings = load_settings(None, environment, {})
    assert settings.origins[name] == variable(name)


def test_the_flags_are_those_of_the_command() -> None:
    given = {flag.removeprefix("--").replace("-", "_"): name for name, flag in flags().items()}
    assert given.keys() >= {"listen", "http", "data", "policies", "memory_limit"}
    settings = load_settings(None, {}, {"listen": ["amqp://127.0.0.1:7777"], "memory_limit": "1 MB"})
    assert settings.origins["listeners"] == "--listen"
    assert settings.memory_limit == 1 << 20
