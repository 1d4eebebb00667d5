"""Print the files that a threshold passes from a policy's text to its gate; ``python -m`` runs it for a test.

Run with SLUICE_PURE=1: no profiler sees the calls of compiled modules.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType

import broker
import tests.conftest  # noqa: F401 - takes the sources of compiled modules
from broker.config.policy_files import parse_policies
from tests.unit.manage_world import World

BROKER = Path(broker.__file__).parent
STOP = 4711
POLICY = f"policies:\n- match: orders\n  flow_stop_count: {STOP}\n"


def carries(value: object) -> bool:
    """Whether a value is the threshold, or a collection or an object of settings that has it."""
    if isinstance(value, (list, tuple)):
        return any(map(carries, value))
    if isinstance(value, dict):
        return any(map(carries, value.values()))
    if is_dataclass(value) and not isinstance(value, type):
        return any(carries(getattr(value, each.name, None)) for each in fields(value))
    return type(value) is int and value == STOP


def main() -> None:
    passed: dict[str, None] = {}

    def note(frame: FrameType, event: str, result: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or BROKER not in path.parents:
            return
        if carries(result) or any(map(carries, list(frame.f_locals.values()))):
            passed[str(path.relative_to(BROKER))] = None

    world = World()
    node = world.queue("orders")
    sys.setprofile(note)
    world.model.policies.apply(parse_policies(POLICY, "policies.yaml"))
    sys.setprofile(None)
    assert node.gate.stop_msgs == STOP
    print(json.dumps(list(passed)))


if __name__ == "__main__":
    main()
