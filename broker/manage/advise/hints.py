"""Thresholds of a recording that can't work well whatever the load, told beside the candidates."""

from __future__ import annotations

from broker.flow.advice import of_resume, of_stop
from broker.manage.advise.demand import measured
from broker.manage.advise.history import FlowHistory
from broker.units import format_size


def hints(history: FlowHistory) -> list[str]:
    """A line for each setting that should be another one, with the reason; of the last thresholds."""
    if not history.samples:
        return []
    last, was = history.samples[-1], measured(history)
    found = [
        of_resume("count", last.stop_msgs, last.resume_msgs, was.stops, was.stop_seconds),
        of_resume("size", last.stop_bytes, last.resume_bytes, was.stops, was.stop_seconds),
        of_stop(last.stop_msgs, max(sample.producers for sample in history.samples)),
    ]
    return [
        f"{each.reason}; set {each.setting} to"
        f" {format_size(each.number) if each.setting.endswith('_size') else f'{each.number:,}'}"
        for each in found
        if each is not None
    ]
