"""What `sluice top` shows and how keys change it: pure, without a terminal and without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from broker.cli.terminal import table
from broker.cli.terminal.printable import printable
from broker.cli.terminal.table import Column, Row, limit, number, size, text

COLUMNS: tuple[Column, ...] = (
    text("node", "name"),
    text("kind", "kind"),
    text("stopped by", "flowStoppedBy"),
    number("for s", "flowStoppedFor"),
    number("in/s", "rate_in"),
    number("out/s", "rate_out"),
    number("msg", "depth_msgs"),
    number("stop", "flow_stop_count", show=limit),
    number("bytes", "depth_bytes", show=size),
    number("promised", "promised_msgs"),
    number("prod", "producers"),
    number("blocked", "blocked_producers"),
    number("cons", "consumers"),
)
ATTRIBUTES = [*table.attributes(COLUMNS), "flowStopped"]


@dataclass(frozen=True, slots=True)
class Sort:
    """An order: as the broker is asked for it, and the attributes it is among those that came."""

    name: str
    asked: str
    names: tuple[str, ...]


# Key -> what it sorts by.
SORTS: dict[str, Sort] = {
    "r": Sort("rate", "rate_in+rate_out", ("rate", "depth_msgs")),
    "i": Sort("in/s", "rate_in", ("rate_in",)),
    "o": Sort("out/s", "rate_out", ("rate_out",)),
    "d": Sort("depth", "depth_msgs", ("depth_msgs", "depth_bytes")),
    "b": Sort("bytes", "depth_bytes", ("depth_bytes",)),
    "s": Sort("stopped", "flowStopped", ("flowStopped", "flowStoppedFor", "blocked_producers")),
    "n": Sort("name", "name", ("name",)),
}
HELP = (
    "r rate  i in  o out  d depth  b bytes  s stopped  n name  R reverse  / filter  a all"
    "  space pause  q quit"
)


@dataclass(slots=True)
class Board:
    """The state of the screen. ``typing`` is a filter on its way, None while none is typed."""

    sort: str = "r"
    reverse: bool = False
    pattern: str = ""
    everything: bool = False
    first: int = 0
    paused: bool = False
    typing: str | None = None
    page: int = field(default=10)

    def press(self, key: str) -> bool:
        """What a key does; False: leave."""
        if self.typing is not None:
            self._type(key)
            return key != "end of input"
        if key in ("q", "Q", "end of input"):
            return False
        if key in SORTS:
            self.sort, self.first = key, 0
        elif key == "/":
            self.typing = self.pattern
        else:
            self._move(key)
        return True

    def _move(self, key: str) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self.page, "page down": self.page}
        if key in steps:
            self.first = max(self.first + steps[key], 0)
        elif key == "home":
            self.first = 0
        elif key == "R":
            self.reverse = not self.reverse
        elif key == "a":
            self.everything = not self.everything
        elif key in (" ", "p"):
            self.paused = not self.paused
        elif key == "escape":
            self.pattern, self.first = "", 0

    def _type(self, key: str) -> None:
        assert self.typing is not None
        if key == "enter":
            self.pattern, self.typing, self.first = self.typing, None, 0
        elif key == "escape":
            self.typing = None
        elif key == "backspace":
            self.typing = self.typing[:-1]
        elif len(key) == 1:
            self.typing += key

    @property
    def asked(self) -> str:
        """The order as the broker is asked for it."""
        return ("-" if self._descending else "") + SORTS[self.sort].asked

    @property
    def _descending(self) -> bool:
        return (self.sort != "n") != self.reverse

    def wanted(self, rows: Sequence[Row]) -> list[Row]:
        """The rows to show, in their order."""
        shown = [{**row, "rate": _rate(row)} for row in rows if self._holds(str(row["name"]))]
        return table.ordered(shown, SORTS[self.sort].names, descending=self._descending)

    def _holds(self, name: str) -> bool:
        if name.startswith("$") and not self.everything:
            return False
        name, pattern = name.casefold(), self.pattern.casefold()
        if "*" not in pattern:
            return pattern in name
        return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))

    def page_of(self, rows: Sequence[Row], height: int, count: int) -> Sequence[Row]:
        """So many of the rows as fit, from where the screen is; there are ``count`` in all."""
        self.page = max(height, 1)
        self.first = min(self.first, max(count - self.page, 0))
        return rows[self.first : self.first + self.page]

    def foot(self, count: int) -> str:
        """The line under the table: the filter that is typed, or where we are and what can be pressed."""
        if self.typing is not None:
            return f"filter: {printable(self.typing)}_   enter takes it, escape doesn't"
        parts = [f"by {SORTS[self.sort].name}{', reversed' if self.reverse else ''}"]
        if self.pattern:
            parts.append(f"only {printable(self.pattern)}")
        if self.paused:
            parts.append("paused")
        last = min(self.first + self.page, count)
        return f"{self.first + 1 if count else 0}-{last} of {count}, {', '.join(parts)}   {HELP}"


def head(broker: Row) -> list[str]:
    """The broker in two lines: what moves and lies there, and what is stopped."""
    memory = f"{size(broker['memory_bytes'])} of {size(broker['memory_limit_bytes'] or None)}"
    held = broker["holds"]
    depth = f"{table.word(broker['depth_msgs'])} messages, {size(broker['depth_bytes'])}"
    up = f"up {table.word(broker['uptime_s'])} s"
    parts = [
        f"{table.word(broker['stopped_nodes'])} nodes stopped",
        f"{table.word(broker['blocked_producers'])} producers blocked",
        *([f"producers stopped for {table.word(held)}"] if held else []),
        *(["a deadlock: sluice stat -f"] if broker["deadlocks"] else []),
    ]
    connections = f"{table.word(broker['connections'])} connections"
    moving = f"in/s {table.word(broker['rate_in'])}   out/s {table.word(broker['rate_out'])}"
    return ["   ".join((up, connections, moving, depth, f"memory {memory}")), "   ".join(parts)]


BROKER_ATTRIBUTES = (
    *("uptime_s", "connections", "depth_msgs", "depth_bytes", "memory_bytes", "memory_limit_bytes"),
    *("stopped_nodes", "blocked_producers", "holds", "deadlocks", "rate_in", "rate_out"),
)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _rate(row: Row) -> float:
    return _number(row.get("rate_in")) + _number(row.get("rate_out"))
