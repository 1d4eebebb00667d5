"""The table of a node's settings: one row is all that a setting needs to be read, shown and explained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from broker.config.flow import BrokerDefaults
from broker.config.node import FIELDS, NodeSettings, SettingError, normalise

# Of the files on the way these know nothing of the setting: the reader of YAML and the types of values.
OF_ANY_SETTING = {"config/yaml.py", "config/fields.py"}
# Beside the row: the policies' file, the policy that wins, the resolved settings; the policies in force; the
# engine's configurator and the gate. A longer way is harder to follow.
ROW = "config/node.py"
MOST_BESIDE_THE_ROW = 6


def printed(module: str, **environment: str) -> Any:
    """Run a module in a Python of its own: it changes what is imported, or how it is called."""
    command = [sys.executable, "-m", f"tests.unit.config.{module}"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout)


def test_a_setting_passes_few_files_from_yaml_to_its_gate() -> None:
    way = [file for file in printed("setting_path", SLUICE_PURE="1") if file not in OF_ANY_SETTING]
    assert {"config/policy_files.py", ROW, "config/policies.py", "config/thresholds.py"} <= set(way)
    assert way[-1] == "flow/gate.py"
    assert len(set(way) - {ROW}) <= MOST_BESIDE_THE_ROW, way


def test_a_row_is_all_that_a_new_setting_needs() -> None:
    shown = printed("added_row")
    assert shown["schema"]["description"] == "How long it naps. Default: 1500 ms."
    assert shown["reference"] == ["| `nap_time` |  | duration | 1500 ms | How long it naps |"]
    assert shown["attributes"] == [1500, 2000, 3000]
    assert shown["api"] == ["int", "int"]
    assert shown["explain"] == [
        "nap_time_ms 1,500 default",
        "nap_time_ms 2,000 policies.yaml:3:3",
        "nap_time_ms 3,000 argument",
    ]
    assert shown["config"] == {"nap_time": "4s"}


def test_every_attribute_is_set_by_a_key() -> None:
    settable = {name for row in FIELDS.values() for name in row.sets}
    assert settable == {each.name for each in fields(NodeSettings)}


def test_the_broker_defaults_are_those_of_the_table() -> None:
    node, broker = NodeSettings(), BrokerDefaults()
    same = {each.name for each in fields(BrokerDefaults)} & {each.name for each in fields(NodeSettings)}
    # The hard limit in bytes is the broker's own.
    assert {name for name in same if getattr(node, name) != getattr(broker, name)} == {"max_size"}


@pytest.mark.parametrize(
    ("text", "days"), [("7D", 7), (" 1M ", 30), ("2Y", 730), ("168h", 7), (86_400_000, 1), ("60D", 60)]
)
def test_a_stream_s_age_is_written_as_elsewhere_and_may_be_long(text: object, days: int) -> None:
    # RabbitMQ's units; other durations end with AMQP's milliseconds, after 49 days.
    assert normalise({"max_age": text})["max_age_ms"].value == days * 86_400_000


@pytest.mark.parametrize("wrong", ["7X", "-1D", "1.5D", "D", True])
def test_an_age_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(SettingError, match="max_age"):
        normalise({"max_age": wrong})
