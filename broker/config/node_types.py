"""Types of a node's settings that are more than one number or word.

A type's ``parse`` gives one value, or a tuple of the attributes that its row of ``broker.config.node`` sets.
The functions at the end are for rows that set attributes of other rows too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from broker.config.cells import MOST_CELLS
from broker.config.fields import Count, Duration, Schema, Size, Word
from broker.units import KB, show

Value = int | float | str

# `flow_control: {}`: EMS takes 256 KB where the property is present without a value.
EMS_STOP_BYTES = 256 * KB


# No cell is said.
NO_CELL = -1

# Days in RabbitMQ's units.
DAYS = {"D": 1, "M": 30, "Y": 365}


@dataclass(frozen=True, slots=True)
class FlowControl:
    """True, false, or a size as in EMS; empty stands for 256 KB."""

    label = "true, false or a size"

    def parse(self, value: object) -> int:
        if isinstance(value, bool):
            return value
        if value in (None, "", {}):
            return EMS_STOP_BYTES
        try:
            size = Size().parse(value)
        except ValueError:
            raise ValueError(f"expected true, false or a size such as 60MB, not {show(value)}") from None
        if size == 0:
            raise ValueError("expected true, false or a size above 0; write false to switch it off")
        return size

    def schema(self) -> Schema:
        sizes = Size(minimum=1).schema()["anyOf"]
        assert isinstance(sizes, list)
        empty: list[Schema] = [{"type": "boolean"}, {"type": "null"}, {"type": "object", "maxProperties": 0}]
        return {"anyOf": [*empty, {"const": ""}, *sizes]}


@dataclass(frozen=True, slots=True)
class CellNumber:
    """The number of one of several cells; empty for none, which is -1."""

    label = "number of a cell"

    def parse(self, value: object) -> int:
        """Parse a number, or its text. ValueError unless it is from 0 to 63."""
        if value is None or value == "":
            return NO_CELL
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:9])
        if value == NO_CELL and not isinstance(value, bool):
            return NO_CELL
        return Count(0, MOST_CELLS - 1).parse(value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "null"}, Count(0, MOST_CELLS - 1).schema()]}


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node's name; empty for none."""

    label = "name of a node"

    def parse(self, value: object) -> str:
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
            raise ValueError(f"expected the name of a node, not {show(value)}")
        return str(value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "null"}, {"const": ""}, {"type": "string", "pattern": NAME_PATTERN}]}


@dataclass(frozen=True, slots=True)
class PropertyName:
    """The name of an application property; empty for none."""

    label = "name of an application property"

    def parse(self, value: object) -> str:
        if value is None or value == "":
            return ""
        if not isinstance(value, str) or not re.fullmatch(PROPERTY_PATTERN, value):
            raise ValueError(f"expected the name of an application property, not {show(value)}")
        return str(value)

    def schema(self) -> Schema:
        return {"anyOf": [{"type": "null"}, {"const": ""}, {"type": "string", "pattern": PROPERTY_PATTERN}]}


PROPERTY_PATTERN = r"^[^\x00-\x1f\x7f\ud800-\udfff]{1,255}$"
# Names of the broker's own nodes begin with '$'; the rest is checked where nodes are made.
NAME_PATTERN = r"^[^$\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]{0,254}$"


@dataclass(frozen=True, slots=True)
class Factor:
    """A number of at least 1 by which something is multiplied, such as 2 or 1.5."""

    label = "a factor such as 1.5"

    def parse(self, value: object) -> float:
        """Parse a number or its text. ValueError unless it is from 1 to 1000."""
        if isinstance(value, str) and re.fullmatch(FACTOR_PATTERN, value, re.ASCII):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected {self.label}, not {show(value)}")
        if not 1 <= value <= MOST_FACTOR:
            raise ValueError(f"must be from 1 to {MOST_FACTOR}, not {value}")
        return float(value)

    def schema(self) -> Schema:
        number: Schema = {"type": "number", "minimum": 1, "maximum": MOST_FACTOR}
        return {"anyOf": [number, {"type": "string", "pattern": FACTOR_PATTERN}]}


@dataclass(frozen=True, slots=True)
class MaxAge(Duration):
    """How long a stream keeps messages: a duration, or days, months or years as RabbitMQ writes them."""

    # A hundred years.
    maximum: int = 100 * 365 * 86_400_000

    def parse(self, value: object) -> int:
        text = value if isinstance(value, str) else ""
        found = re.fullmatch(r"\s*([0-9]{1,6})([DMY])\s*", text, re.ASCII)
        if found is None:
            return Duration.parse(self, value)
        return min(int(found[1]) * DAYS[found[2]] * 86_400_000, self.maximum)

    def schema(self) -> Schema:
        known = Duration.schema(self)
        return {"anyOf": [known, {"type": "string", "pattern": r"^\s*[0-9]{1,6}[DMY]\s*$"}]}


@dataclass(frozen=True, slots=True)
class DuplicateWindow:
    """A count, a time, or both: `10000`, `10m`, `10000 10m` or `{count: 10000, time: 10m}`."""

    label = "a count such as 10000, a time such as 10m, or both"

    def parse(self, value: object) -> tuple[int, int]:
        """Parse it into a number of ids and milliseconds; 0 where one isn't given."""
        if isinstance(value, int) and not isinstance(value, bool):
            return COUNT.parse(value), 0
        if isinstance(value, Mapping) and value and value.keys() <= {"count", "time"}:
            span_ms = SPAN.parse(value["time"]) if "time" in value else 0
            return COUNT.parse(value.get("count", 0)), span_ms
        text = re.fullmatch(WINDOW_PATTERN, value, re.ASCII) if isinstance(value, str) else None
        if text:
            return int(text[1] or 0), SPAN.parse(text[2]) if text[2] else 0
        raise ValueError(f"expected {self.label}, not {show(value)}")

    def schema(self) -> Schema:
        both: Schema = {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {"count": COUNT.schema(), "time": SPAN.schema()},
        }
        return {"anyOf": [COUNT.schema(), {"type": "string", "pattern": WINDOW_PATTERN}, both]}


@dataclass(frozen=True, slots=True)
class SlowConsumer:
    """``{rate: 10, for: 30s, action: notify}`` or ``10/s for 30s notify``; without an action it is notify."""

    label = "a rate, a time and an action such as `10/s for 30s notify`"

    def parse(self, value: object) -> tuple[int, int, str]:
        """Parse it into messages a second, milliseconds and the action; a rate of 0 is none."""
        if value is None or value == "":
            return 0, 0, "notify"
        if isinstance(value, Mapping) and {"rate", "for"} <= value.keys() <= {"rate", "for", "action"}:
            return self._of(value["rate"], value["for"], value.get("action", "notify"))
        text = re.fullmatch(SLOW_PATTERN, value, re.ASCII) if isinstance(value, str) else None
        if text:
            return self._of(int(text[1]), text[2], text[3] or "notify")
        raise ValueError(f"expected {self.label}, not {show(value)}")

    def schema(self) -> Schema:
        parts: Schema = {
            "type": "object",
            "additionalProperties": False,
            "required": ["rate", "for"],
            "properties": {
                "rate": SLOW_RATE.schema(),
                "for": SLOW_SPAN.schema(),
                "action": SLOW_ACTION.schema(),
            },
        }
        text: Schema = {"type": "string", "pattern": SLOW_PATTERN}
        return {"anyOf": [{"type": "null"}, {"const": ""}, text, parts]}

    @staticmethod
    def _of(rate: object, span: object, action: object) -> tuple[int, int, str]:
        return SLOW_RATE.parse(rate), SLOW_SPAN.parse(span), SLOW_ACTION.parse(action)


COUNT = Count()
# Links are looked at once a second (server.py).
SLOW_RATE = Count(minimum=1, maximum=1_000_000_000)
SLOW_SPAN = Duration(minimum=1000)
SLOW_ACTION = Word(("notify", "detach"))
SPAN = Duration(minimum=1)
# A count, or a time with its unit, or one behind the other.
_TIME = r"[0-9]{1,18}(?:\.[0-9]{1,9})?\s*(?:[mM][sS]|[sSmMhH])"
SLOW_PATTERN = rf"^\s*([0-9]{{1,9}})\s*(?:/\s*s)?\s+for\s+({_TIME})(?:\s+(notify|detach))?\s*$"
# The most that redelivery_multiplier may be.
MOST_FACTOR = 1000
FACTOR_PATTERN = r"^\s*[0-9]{1,4}(\.[0-9]{1,9})?\s*$"
WINDOW_PATTERN = rf"^(?=.*[0-9])\s*(?:([0-9]{{1,15}})(?:\s+|$))?({_TIME})?\s*$"


@dataclass(frozen=True, slots=True)
class WhenFull:
    """A word, or ``reject_after`` with a time: as ``{reject_after: 3s}`` or as ``reject_after 3s``."""

    label = "`block`, `reject` or `reject_after: 3s`"

    def parse(self, value: object) -> tuple[str, int]:
        """Parse it into the word and its milliseconds; 0 where no time was given."""
        if isinstance(value, Mapping) and list(value) == ["reject_after"]:
            return "reject_after", REJECT_AFTER.parse(value["reject_after"])
        timed = re.fullmatch(r"reject_after\s*[:\s]\s*(\S.*)", value) if isinstance(value, str) else None
        if timed:
            text = timed[1]
            return "reject_after", REJECT_AFTER.parse(text)
        return WHEN_FULL.parse(value), 0

    def schema(self) -> Schema:
        timed = {
            "type": "object",
            "required": ["reject_after"],
            "additionalProperties": False,
            "properties": {"reject_after": REJECT_AFTER.schema()},
        }
        return {"anyOf": [WHEN_FULL.schema(), {"type": "string", "pattern": "^reject_after[: ]"}, timed]}


WHEN_FULL = Word(("block", "reject", "reject_after"))
REJECT_AFTER = Duration(minimum=1)


def kind(parsed: object) -> dict[str, Value]:
    """Say what `kind` means: a stream is a queue of a type of its own."""
    if parsed == "stream":
        return {"kind": "queue", "queue_type": "stream"}
    return {"kind": str(parsed)}


def flow_control(parsed: object) -> dict[str, Value]:
    """Say what `flow_control` means: EMS's size is both thresholds in bytes."""
    assert isinstance(parsed, int)
    if isinstance(parsed, bool):
        return {"flow_control": parsed}
    return {"flow_control": True, "flow_stop_size": parsed, "flow_resume_size": 0}


def when_full(parsed: object) -> dict[str, Value]:
    """Say what `when_full` means: its word, and the time that may stand behind it."""
    assert isinstance(parsed, tuple)
    word, after_ms = parsed
    return {"when_full": word, **({"reject_after_ms": after_ms} if after_ms else {})}


def reject_after(parsed: object) -> dict[str, Value]:
    """Say what `reject_after`, and ActiveMQ's timeout, mean; 0 is to block."""
    assert isinstance(parsed, int)
    return {"when_full": "reject_after", "reject_after_ms": parsed} if parsed else {"when_full": "block"}


def send_fail(parsed: object) -> dict[str, Value]:
    """Say what ActiveMQ's `send_fail_if_no_space` means."""
    return {"when_full": "reject" if parsed else "block"}


def group_key(parsed: object) -> Mapping[str, Value]:
    """Say what a group's property implies: groups in the manner of qpidd, which has the setting's name."""
    name = str(parsed)
    return {"group_key": name, "message_groups": "shared"} if name else {"group_key": ""}
