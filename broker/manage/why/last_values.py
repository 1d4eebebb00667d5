"""Last-value queues in the answers of ``why``: whether the keys alone keep the gate closed."""

from __future__ import annotations

from broker.engine.node import Node


def sentence_of(node: Node) -> str:
    """Return a sentence, with a space in front, on a closed gate that its keys alone keep closed; else ""."""
    values = node.last_values
    gate = node.gate
    if values is None or not gate.closed or not 0 < gate.resume_msgs <= len(values.newest):
        return ""
    return (
        f" The queue keeps the last value of {len(values.newest):,} keys, and newer values need credit"
        " as well: set flow_stop_count and flow_resume_count above the number of keys."
    )
