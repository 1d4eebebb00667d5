"""A streaming query while it runs: a line a batch on stderr, ended by a signal or by itself."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from broker.errors import OperatorError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """What Spark says of one micro-batch that had rows, or moved the watermark."""

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


def watch(query: StreamingQuery) -> list[Batch]:
    """Until it ends, or SIGTERM or an interrupt ends it; its batches. OperatorError says why it failed."""
    seen: dict[int, Batch] = {}
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while not query.awaitTermination(LOOK_EVERY_S):
            _note(query, seen)
            if told:
                query.stop()
    except StreamingQueryException as error:
        raise OperatorError(_cause(str(error))) from error
    except KeyboardInterrupt:
        query.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
        _note(query, seen)
    return list(seen.values())


def _note(query: StreamingQuery, seen: dict[int, Batch]) -> None:
    for progress in query.recentProgress:
        batch = batch_of(progress)
        if batch.number not in seen and (batch.rows or batch.watermark):
            seen[batch.number] = batch
            print(batch.told, file=sys.stderr, flush=True)


def batch_of(progress: Any) -> Batch:
    """One of Spark's reports."""
    found: Mapping[str, Any] = progress if isinstance(progress, dict) else _as_dict(progress)
    operators = found.get("stateOperators") or []
    return Batch(
        number=int(found["batchId"]),
        at=str(found["timestamp"]),
        rows=int(found["numInputRows"]),
        seconds=float((found.get("durationMs") or {}).get("triggerExecution", 0)) / 1000,
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
