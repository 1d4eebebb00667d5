"""Transactions beside the same durable messages without any, in one run on one queue."""

from __future__ import annotations

from bench.contenders import Running
from bench.measuring import Figures, Pace, load, number

MANY = 100


def scenario(running: Running, pace: Pace) -> Figures:
    """Durable messages in transactions of ``MANY``, and one at a time in a transaction each."""
    figures: Figures = {}
    for name, job in (
        ("plain", {}),
        ("many", {"transaction": MANY}),
        ("single", {"window": 1}),
        ("one", {"window": 1, "transaction": 1}),
    ):
        result = load(running, pace, address="durable.transactions", durable=True, **job)
        figures[f"{name}_rate"] = number(result["out_s"])
        figures[f"{name}_us"] = number(result["broker_cpu_us"])
    return figures
