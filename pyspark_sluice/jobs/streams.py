"""A streaming query while it runs: its batches, told on stderr, ended by a signal or by itself."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from broker.errors import OperatorError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 1
# So many batches are kept to be shown.
MOST_BATCHES = 200
# Among a report's durations only where a batch was run.
RAN = "addBatch"


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark says of one micro-batch: that had rows, or was run to move the watermark."""

    number: int
    at: str
    rows: int
    seconds: float
    watermark: str
    state_rows: int
    late_rows: int

    @property
    def told(self) -> str:
        """In a line."""
        rate = f"{self.rows / self.seconds:,.0f}/s" if self.seconds else ""
        late = f", {self.late_rows:,} too late" if self.late_rows else ""
        mark = f", watermark {self.watermark}" if self.watermark else ""
        return f"batch {self.number}: {self.rows:,} rows in {self.seconds:.1f} s, {rate}{mark}{late}"


class Seen:
    """Totals over all batches, and the last of them; ``tell``: a line of each on stderr."""

    def __init__(self, *, tell: bool = True) -> None:
        self._tell = tell
        self.batches = self.rows = self.late_rows = 0
        self.last: deque[Batch] = deque(maxlen=MOST_BATCHES)

    def note(self, reports: Iterable[Any]) -> None:
        """Spark's latest reports, the oldest first; a batch counts once.

        A query that is idle reports every ten seconds under the number of the batch to come, with no rows and
        a watermark: that is no batch.
        """
        for report in reports:
            batch = batch_of(report)
            if batch is not None and (not self.last or batch.number > self.last[-1].number):
                self.batches += 1
                self.rows += batch.rows
                self.late_rows += batch.late_rows
                self.last.append(batch)
                if self._tell:
                    print(batch.told, file=sys.stderr, flush=True)


def watch(query: StreamingQuery, *, tell: bool = True) -> Seen:
    """Until it ends, or SIGTERM or an interrupt ends it; its batches. OperatorError says why it failed."""
    seen = Seen(tell=tell)
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            seen.note(query.recentProgress)
            if told:
                query.stop()
    except StreamingQueryException as error:
        raise OperatorError(_cause(str(error))) from error
    except KeyboardInterrupt:
        query.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
        seen.note(query.recentProgress)
    return seen


def batch_of(progress: Any) -> Batch | None:
    """One of Spark's reports; None if it is of no batch that was run."""
    found: Mapping[str, Any] = progress if isinstance(progress, dict) else _as_dict(progress)
    operators = found.get("stateOperators") or []
    took, rows = found.get("durationMs") or {}, int(found["numInputRows"])
    if not rows and RAN not in took:
        return None
    return Batch(
        number=int(found["batchId"]),
        at=str(found["timestamp"]),
        rows=rows,
        seconds=float(took.get("triggerExecution", 0)) / 1000,
        watermark=str((found.get("eventTime") or {}).get("watermark", "")),
        state_rows=sum(int(each.get("numRowsTotal", 0)) for each in operators),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in operators),
    )


def _as_dict(progress: Any) -> Mapping[str, Any]:
    import json

    found: dict[str, Any] = json.loads(progress.json)
    return found


def _cause(text: str) -> str:
    """The last error of a Python data source, or what Spark says."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith("at ")]
    return named[-1] if named else lines[0]
