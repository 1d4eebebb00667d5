"""Reading the broker's event history: JSON lines, of which only samples and gate changes matter here.

The one place that knows the format. What is wrong with a file is told with file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from broker.errors import OperatorError

VERSION = 1
SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000
MOST_PROBLEMS = 10
STEM = "events.jsonl"
# Of a data directory with several cells.
CELL_FOLDERS = "cell-*"
# A depth of this part of a threshold is near it.
NEAR = 0.97

Line = dict[str, object]


class HistoryError(OperatorError):
    """Lines of a history make no sense; ``problems`` are located, in file order."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        more = ["further lines are not shown"] if len(problems) > MOST_PROBLEMS else []
        super().__init__("\n".join([*problems[:MOST_PROBLEMS], *more]))


@dataclass(frozen=True, slots=True)
class HistorySample:
    """What a node did in the ``interval_ns`` before ``at_ns``, and how it stood then.

    ``stopped_ns`` and ``stops`` count since the node came to be, in this life of the broker.
    """

    at_ns: int
    interval_ns: int
    received: int
    received_bytes: int
    settled: int
    depth_msgs: int
    depth_bytes: int
    blocked_producers: int
    producers: int
    consumers: int
    stopped_ns: int
    stops: int
    closed: bool
    promised_msgs: int
    promised_bytes: int
    stop_msgs: int
    resume_msgs: int
    stop_bytes: int
    resume_bytes: int

    @property
    def pressed(self) -> bool:
        """True if producers have all the room there is below a threshold that is nearly reached: an open
        gate lets in no more than leaves.
        """
        by_count = self.stop_msgs > 0 and _is_pressed(self.depth_msgs, self.promised_msgs, self.stop_msgs, 1)
        size = self.depth_bytes // max(self.depth_msgs, 1)
        return by_count or (
            self.stop_bytes > 0
            and _is_pressed(self.depth_bytes, self.promised_bytes, self.stop_bytes, max(size, 1))
        )


def _is_pressed(depth: int, promised: int, stop: int, size: int) -> bool:
    return depth >= NEAR * stop and depth + promised + size > stop


@dataclass(frozen=True, slots=True)
class GateChange:
    """The gate stopped or opened; thresholds of 0 are none.

    ``skipped`` is true where changes before it were not told: then it only says how the gate stood.
    """

    at_ns: int
    closed: bool
    reason: str
    depth_msgs: int
    depth_bytes: int
    stop_msgs: int
    resume_msgs: int
    stop_bytes: int
    resume_bytes: int
    skipped: bool = False


@dataclass(slots=True)
class FlowHistory:
    """One node's samples and gate changes, each in order of time, in nanoseconds since the first record."""

    node: str
    samples: list[HistorySample] = field(default_factory=list)
    turns: list[GateChange] = field(default_factory=list)

    def last(self, seconds: float) -> FlowHistory:
        """Its last part."""
        if not self.samples:
            return self
        since_ns = self.end_ns - round(seconds * SECOND_NS)
        return FlowHistory(
            self.node,
            [sample for sample in self.samples if sample.at_ns > since_ns],
            [turn for turn in self.turns if turn.at_ns > since_ns],
        )

    @property
    def begin_ns(self) -> int:
        """Where the first sample's interval begins."""
        return self.samples[0].at_ns - self.samples[0].interval_ns

    @property
    def end_ns(self) -> int:
        """When the last sample was taken."""
        return self.samples[-1].at_ns


@dataclass(slots=True)
class Archive:
    """All that was read; ``notes`` are what the reader passed over and should be told of."""

    nodes: dict[str, FlowHistory] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read(names: Iterable[str]) -> Archive:
    """The histories in files, in folders that hold ``events.jsonl``, and in what it was rotated to.

    Files are put in the order of their first record, however they are named. A folder of several cells is
    read cell by cell: a node's history is that of the cell with most samples of it. A last line that breaks
    off is passed over with a note. HistoryError names every other line that makes no sense.
    """
    found = Archive()
    for group in _of_each_broker(names):
        archive = _read(group)
        found.notes += archive.notes
        for name, history in archive.nodes.items():
            if name not in found.nodes or len(history.samples) > len(found.nodes[name].samples):
                found.nodes[name] = history
    return found


def _of_each_broker(names: Iterable[str]) -> list[list[str]]:
    """The names of one broker's files and folders, and the folder of each cell in a folder of several."""
    own: list[str] = []
    cells: list[list[str]] = []
    for name in names:
        inside = [str(each) for each in sorted(Path(name).glob(CELL_FOLDERS)) if each.is_dir()]
        cells += [[each] for each in inside]
        if not inside:
            own.append(name)
    return [own, *cells] if own else cells


def _read(names: Iterable[str]) -> Archive:
    """The same of one broker's files and folders."""
    archive, problems, clock = Archive(), list[str](), _Clock()
    for path in sorted(_paths(names), key=_first_ns):
        for number, text, whole in _lines(path):
            try:
                _take(archive, clock, text)
            except ValueError as error:
                if whole:
                    problems.append(f"{path}:{number}: {error}")
                else:
                    archive.notes.append(f"{path}:{number}: the last line breaks off and is passed over")
    if problems:
        raise HistoryError(problems)
    return archive


def parse(lines: Iterable[bytes]) -> Archive:
    """The histories in lines that are in order of time; what makes no sense is passed over with a note."""
    archive, clock = Archive(), _Clock()
    for text in lines:
        try:
            _take(archive, clock, text)
        except ValueError as error:
            _note(archive, f"lines were passed over: {error}")
    return archive


def _paths(names: Iterable[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            inside = sorted(each for each in path.glob(f"{STEM}*") if each.is_file())
            if not inside:
                raise OperatorError(f"{name}: no {STEM} in this folder")
            found |= dict.fromkeys(inside)
        else:
            found[path] = None
    return list(found)


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    """Every line with its number, and whether it ends as a line does: only the last can have been cut off."""
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield number, text, text.endswith(b"\n")
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}") from error


def _first_ns(path: Path) -> int:
    """When a file begins; 0 where its first line doesn't say."""
    for _, text, _ in _lines(path):
        try:
            return _wall_ns(_parsed(text))
        except ValueError:
            return 0
    return 0


def _parsed(text: bytes) -> Line:
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at column {error.colno}") from None
    except (UnicodeDecodeError, RecursionError):
        raise ValueError("no JSON: not UTF-8 text, or nested too deep") from None
    if not isinstance(line, dict):
        raise ValueError("expected an object")
    if line.get("v") != VERSION:
        raise ValueError(f"this reads version {VERSION} of the schema, not {line.get('v')!r}")
    return line


def _wall_ns(line: Line) -> int:
    try:
        return round(datetime.fromisoformat(str(line.get("time"))).timestamp() * SECOND_NS)
    except (ValueError, OverflowError):
        return 0


class _Clock:
    """One line of time through restarts: monotonic within a broker's life, the wall clock between lives."""

    def __init__(self) -> None:
        self.last_seq = self.last_mono_ns = self.now_ns = 0
        self.mono_zero_ns = self.wall_zero_ns = 0
        self.begun = False

    def at(self, seq: int, mono_ns: int, wall_ns: int) -> int:
        """Nanoseconds since the first record."""
        if not self.begun:
            self.begun = True
            self.mono_zero_ns, self.wall_zero_ns = mono_ns, wall_ns
        elif seq <= self.last_seq or mono_ns < self.last_mono_ns:
            # Another life of the broker, perhaps after the machine's: only the wall clock spans both.
            self.mono_zero_ns = mono_ns - max(wall_ns - self.wall_zero_ns, self.now_ns)
        self.last_seq, self.last_mono_ns = seq, mono_ns
        self.now_ns = max(mono_ns - self.mono_zero_ns, self.now_ns)
        return self.now_ns


def _take(archive: Archive, clock: _Clock, text: bytes) -> None:
    """One line into its node's history; other kinds of event only move the clock. ValueError says why not."""
    line = _parsed(text)
    at_ns = clock.at(_number(line, "seq"), _number(line, "mono_ns"), _wall_ns(line))
    event = line.get("event")
    if event == "lost":
        archive.notes.append(f"{line.get('count')} events were lost while this was recorded")
    if event not in ("sample", "stopped", "opened"):
        return
    node = line.get("node")
    if node is None and event != "sample":
        _note(archive, "a budget of the whole broker stopped producers: that is in no prediction")
        return
    if not isinstance(node, str) or not node:
        raise ValueError(f"{event}: no node")
    history = archive.nodes.setdefault(node, FlowHistory(node))
    if event == "sample":
        history.samples.append(_sample(line, at_ns))
    else:
        history.turns.append(_turn(line, at_ns))


def _note(archive: Archive, text: str) -> None:
    if text not in archive.notes:
        archive.notes.append(text)


def _sample(line: Line, at_ns: int) -> HistorySample:
    interval_ns = _nanoseconds(line, "interval_ms")
    if interval_ns == 0:
        raise ValueError("sample: an interval_ms of 0")
    return HistorySample(
        at_ns=at_ns,
        interval_ns=interval_ns,
        received=_number(line, "received"),
        received_bytes=_number(line, "received_bytes"),
        settled=_number(line, "settled"),
        depth_msgs=_number(line, "depth_msgs"),
        depth_bytes=_number(line, "depth_bytes"),
        blocked_producers=_number(line, "blocked_producers", 0),
        producers=_number(line, "producers", 0),
        consumers=_number(line, "consumers", 0),
        stopped_ns=_nanoseconds(line, "stopped_total_ms"),
        stops=_number(line, "stopped_count"),
        closed=line.get("state") == "stopped",
        promised_msgs=_number(line, "promised_msgs", 0),
        promised_bytes=_number(line, "promised_bytes", 0),
        stop_msgs=_number(line, "stop_msgs", 0),
        resume_msgs=_number(line, "resume_msgs", 0),
        stop_bytes=_number(line, "stop_bytes", 0),
        resume_bytes=_number(line, "resume_bytes", 0),
    )


def _turn(line: Line, at_ns: int) -> GateChange:
    return GateChange(
        at_ns=at_ns,
        closed=line["event"] == "stopped",
        reason=str(line.get("reason", "")),
        depth_msgs=_number(line, "depth_msgs"),
        depth_bytes=_number(line, "depth_bytes"),
        stop_msgs=_number(line, "stop_msgs", 0),
        resume_msgs=_number(line, "resume_msgs", 0),
        stop_bytes=_number(line, "stop_bytes", 0),
        resume_bytes=_number(line, "resume_bytes", 0),
        skipped=_number(line, "skipped", 0) > 0,
    )


def _nanoseconds(line: Line, name: str) -> int:
    value = line.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
        raise ValueError(f"{line.get('event')}: {name} {_said(value)}, not a number of 0 or more")
    return round(value * MILLISECOND_NS)


def _number(line: Line, name: str, default: int | None = None) -> int:
    value = line.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(
            f"{line.get('event', 'event')}: {name} {_said(value)}, not a whole number of 0 or more"
        )
    return value


def _said(value: object) -> str:
    return "is missing" if value is None else f"is {json.dumps(value)[:40]}"
