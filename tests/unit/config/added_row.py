"""Print all that shows a node's settings, with one more row in the table; a test runs it by ``python -m``."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path

TABLE = Path(__file__).parents[3] / "broker" / "config" / "node.py"
PLACE = "    expire_after_ms: int = setting("
ROW = '    nap_time_ms: int = setting(Duration(), 1500, "How long it naps")\n'
POLICY = "policies:\n- match: lazy\n  nap_time: 2s\n"


def add_row() -> None:
    """Load the table's module from its source with the row in it; nothing else is changed."""
    source = TABLE.read_text()
    assert source.count(PLACE) == 1
    spec = importlib.util.spec_from_file_location("broker.config.node", TABLE)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    exec(compile(source.replace(PLACE, ROW + PLACE), str(TABLE), "exec"), module.__dict__)


def main() -> None:
    add_row()
    from broker.cli.main import verb_of
    from broker.cli.terminal import changes
    from broker.cli.terminal.reference import reference
    from broker.cli.verbs import explain
    from broker.config.policy_schema import policy_schema
    from broker.http.api import shapes
    from broker.manage import attributes
    from broker.manage.views import queue_view
    from tests.unit.manage_world import BEGIN, World

    world = World(POLICY)
    schema = json.loads(json.dumps(policy_schema()))["properties"]["policies"]["items"]["properties"]
    nodes = [world.queue("orders"), world.queue("lazy"), world.queue("asked", nap_time="3s")]
    words = ["add", "queue", "orders", "--argument", "nap_time=4s"]
    shown = [attributes.shown(queue_view(node, "", BEGIN), attributes.NODE, 0) for node in nodes]
    told = [explain.told(asdict(world.model.explanations.explain(node.name))) for node in nodes]
    found = {
        "schema": schema["nap_time"],
        "reference": [line for line in reference().splitlines() if "nap_time" in line],
        "attributes": [each["nap_time_ms"] for each in shown],
        "api": [shape.__annotations__["nap_time_ms"].__name__ for shape in (shapes.Queue, shapes.Topic)],
        "explain": [" ".join(line.split()) for text in told for line in text.splitlines() if "nap_" in line],
        "config": changes.settings(verb_of("config")[1].parse_args(words)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
