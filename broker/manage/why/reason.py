"""One reason why a link waits, and the words that numbers, sizes and spans of time are told in."""

from __future__ import annotations

from dataclasses import dataclass

from broker.manage.why.cause import SIZE, GateCause
from broker.units import KB, SIZE_UNITS, format_size


@dataclass(frozen=True, slots=True)
class Reason:
    """``cause`` names it in one word, ``bar`` has its numbers. ``eta_s`` is None where nobody can tell;
    ``error`` is how far such forecasts were off lately, None where none was compared yet.
    """

    cause: str
    text: str
    frees: str
    bar: GateCause
    eta_s: float | None = None
    error: float | None = None


def suspension(cause: str, text: str, bar: GateCause) -> Reason:
    """Return the reason of all that waits for a replicated cell's log; ``text`` is the owner's word on it."""
    told = f"the replicated cell is suspended: {text}"
    return Reason(cause, told, "when the log answers again, or another member owns the cell", bar)


def eta_text(reason: Reason) -> str:
    """`, in about 4.0 s at the present rate (± 30 % lately)`; empty where nobody can tell."""
    if reason.eta_s is None:
        return ""
    measured = "" if reason.error is None else f" (± {reason.error:.0%} lately)".replace("%", " %")
    return f", in about {span(reason.eta_s)} at the present rate{measured}"


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def about(size: int) -> str:
    """Bytes in the unit that reads best, rounded unless it is exact."""
    if size < KB or size % KB == 0:
        return format_size(size)
    unit = next(unit for unit in ("GB", "MB", "KB") if size >= SIZE_UNITS[unit])
    return f"{size / SIZE_UNITS[unit]:.1f} {unit}"


def quantity(setting: str, number: int) -> str:
    """A number in the setting's unit."""
    return about(number) if setting == SIZE else f"{number:,}"


def filled(bar: GateCause) -> str:
    """`50 of 100 messages queued`."""
    unit = "" if bar.setting == SIZE else " messages"
    return f"{quantity(bar.setting, bar.depth)} of {quantity(bar.setting, bar.stop)}{unit} queued"


def messages(count: int) -> str:
    """`1 message`, `1,200 messages`."""
    return f"{count:,} message{'' if count == 1 else 's'}"
