"""A stream as micro-batches: the driver plans offsets, and tasks read them from the broker.

1. A query's position is, for each partition, the offset to read on from. The first is chosen by options, and
   from then on the checkpoint's counts.
2. ``latestOffset`` asks the broker how far the stream is, and ends the batch there, or earlier by the limits.
   It reads no message.
3. ``partitions`` makes tasks of the offsets between two positions. They have the same rows whenever they are
   read, so a batch that Spark repeats after a restart is the same batch.
4. Nothing is settled: the stream keeps its messages, and the position is Spark's.
5. A position says which streams it is of. One that was made anew has other messages at the same offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from . import incoming
from .errors import DataLossError, OptionError
from .limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from .management import QUEUE, Attributes
from .offsets import StreamOffsets, extent_of, missing
from .options import Options
from .position import Position, ids_of, offsets_of, remade, stream_position
from .rangereader import StreamRange, read_range
from .ranges import EARLIEST, LATEST, Extent, Range, ahead, between, chosen, ids_in, limited, split

log = logging.getLogger("pyspark_sluice")

# How long a stream without news keeps a trigger waiting, and a broker that can't be reached: meanwhile a
# query that is to stop can't.
IDLE_S, PATIENCE_S = 0.1, 2.0


def extents_of(
    broker: StreamOffsets, streams: Sequence[str], patience_s: float | None
) -> dict[int, Extent] | None:
    """Where each partition begins and ends now; None without an answer in time. AmqpError where one is no
    stream, or can't be seen."""
    answers = broker.attributes([(QUEUE, address) for address in streams], patience_s)
    return None if answers is None else _extents(streams, answers)


def present_extents(broker: StreamOffsets, streams: Sequence[str]) -> dict[int, Extent]:
    """The same, however long it takes, of streams that the broker makes if they aren't there."""
    questions = [(QUEUE, address) for address in streams]
    answers = _present(broker.attributes(questions, None))
    absent = [address for address, found in zip(streams, answers, strict=True) if found is None]
    for address in absent:
        broker.touch(address)
    if absent:
        answers = _present(broker.attributes(questions, None))
    return _extents(streams, answers)


def _present(answers: list[Attributes | None] | None) -> list[Attributes | None]:
    assert answers is not None, "an answer, or the connection's failure"
    return answers


def _extents(streams: Sequence[str], answers: list[Attributes | None]) -> dict[int, Extent]:
    found = {}
    for partition, (address, attributes) in enumerate(zip(streams, answers, strict=True)):
        extent = extent_of(attributes)
        if extent is None:
            raise missing(address)
        found[partition] = extent
    return found


def first_offsets(
    options: Options,
    broker: StreamOffsets,
    streams: Sequence[str],
    extents: dict[int, Extent],
    default: str,
) -> dict[int, int]:
    """Where the options have a new query, or a table, begin; OptionError where there is no such offset."""
    if options.starting_timestamp is not None:
        at = {
            each: broker.offset_at(address, options.starting_timestamp)
            for each, address in enumerate(streams)
        }
        return {each: extents[each].next if offset is None else offset for each, offset in at.items()}
    return named_offsets("startingOffsets", options.starting_offsets or default, extents)


def named_offsets(
    name: str, wanted: str | tuple[tuple[int, int], ...], extents: dict[int, Extent]
) -> dict[int, int]:
    """The offsets that an option means; OptionError where a partition doesn't have them."""
    try:
        return chosen(name, wanted if isinstance(wanted, str) else dict(wanted), extents)
    except ValueError as fault:
        raise OptionError(str(fault)) from None


def tasks_of(
    ranges: list[Range], options: Options, streams: Sequence[str], ids: Mapping[int, int]
) -> list[InputPartition]:
    """A task for each range, or for each part of one; ``ids`` says which streams they are of."""
    return [
        StreamRange(streams[each.partition], each, ids.get(each.partition))
        for each in split(ranges, options.min_partitions or 1)
    ]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``streams`` are the addresses of the partitions. Made without connecting."""

    def __init__(self, options: Options, schema: StructType, streams: Sequence[str]) -> None:
        incoming.check(schema, stream=True)
        if options.ending_offsets is not None:
            raise OptionError("endingOffsets is of a table: a query has no end")
        self.options = options
        self.schema = schema
        self.streams = tuple(streams)
        self._broker: StreamOffsets | None = None
        # How far the stream was when it was asked about last, and where the batch planned last ends.
        self._known: dict[int, int] = {}
        self._planned: Position = {}
        # Where a run ends that takes what was there.
        self._target: dict[int, int] | None = None
        # When the last batch that had anything was planned (monotonic).
        self._batch_at = float("-inf")

    # --- positions

    def initialOffset(self) -> Position:  # noqa: N802  Spark's names, here and below
        broker = self._asked()
        extents = present_extents(broker, self.streams)
        first = first_offsets(self.options, broker, self.streams, extents, LATEST)
        return stream_position(first, ids_in(extents))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends with the messages that there are now."""
        extents = present_extents(self._asked(), self.streams)
        self._target = {partition: extent.next for partition, extent in extents.items()}

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:  # noqa: N802
        end = self._end_of_batch(start, limit)
        if end == start and self._target is None:
            time.sleep(IDLE_S)
            end = self._end_of_batch(start, limit)
        if end != start:
            self._batch_at = time.monotonic()
        self._planned = end
        return end

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """How far the stream was when it was last asked about, and how many messages that is ahead."""
        if not self._known:
            return None
        planned = offsets_of(self._planned)
        lag = sum(max(offset - planned.get(each, 0), 0) for each, offset in self._known.items())
        return stream_position(self._known) | {"lag": lag}

    def commit(self, end: Position) -> None:
        """Nothing to do: the position is Spark's."""

    # --- batches

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        begun, ends, ids = offsets_of(start), self._of_streams(end), ids_of(end)
        for each in remade(ids_of(start), ids):
            begun.pop(each, None)
        if end != self._planned:
            # Planned by an earlier run: the stream may be another one by now.
            extents = extents_of(self._asked(), self.streams, PATIENCE_S) or {}
            known, now = {each: extent.next for each, extent in extents.items()}, ids_in(extents)
            # Also one that is new, or was made anew, to this batch.
            places = {each: begun.get(each, 0) for each in ends}
            self.check(stream_position(places, ids_of(start) | ids), known, now)
            ends = {each: offset for each, offset in ends.items() if each not in remade(ids, now)}
        return tasks_of(between(begun, ends), self.options, self.streams, ids)

    def check(self, start: Position, ends: Mapping[int, int], ids: Mapping[int, int]) -> None:
        """Raise DataLossError, or warn, where a partition ends before the query's position, or is another
        stream by now; of which nothing is in ``ends``, nothing is known.
        """
        others = remade(ids_of(start), ids)
        faults = []
        for each, offset in self._of_streams(start).items():
            if each not in ends:
                continue
            named = f"partition {each} ('{self.streams[each]}')"
            if each in others:
                faults.append(f"{named} is not the stream that the query has read up to offset {offset}")
            elif ends[each] < offset:
                faults.append(
                    f"{named} ends at {ends[each]}, before offset {offset} at which the query stands"
                )
        if faults and self.options.fail_on_data_loss:
            raise DataLossError(
                f"{'; '.join(faults)}: the stream was made anew, as one without a disk is when its broker"
                " restarts. failOnDataLoss=false reads it from its beginning"
            )
        if faults:
            log.warning("%s; it is read from its beginning", "; ".join(faults))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        assert isinstance(partition, StreamRange)
        return read_range(partition, self.options, self.schema)

    def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    # --- inside

    def _end_of_batch(self, start: Position, limit: ReadLimit) -> Position:
        """Where a batch from ``start`` ends; ``start`` where there is none to be made yet."""
        # To a run that ends with what is there, no news would be the end; without a start there is no batch
        # that could be as empty as that.
        patience_s = PATIENCE_S if start and self._target is None else None
        extents = extents_of(self._asked(), self.streams, patience_s)
        if extents is None:
            return start
        self._known = {partition: extent.next for partition, extent in extents.items()}
        begun, ids, now = offsets_of(start), ids_of(start), ids_in(extents)
        self.check(start, self._known, now)
        others = remade(ids, now)
        kept = {each: offset for each, offset in begun.items() if each not in others}
        end, count = ahead(kept, extents, self._target)
        if self._waits(count, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(kept, extents, end, limit.max_rows)
        # A position without identities is the same as one with them: there is no batch without messages.
        return start if end == begun and not others else stream_position(end, ids | now)

    def _waits(self, count: int, limit: ReadLimit) -> bool:
        """Whether so few messages are no batch yet (``minOffsetsPerTrigger``)."""
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self.options.min_offsets_per_trigger
        waited_s = time.monotonic() - self._batch_at
        return least is not None and count < least and waited_s < self.options.max_trigger_delay

    def _of_streams(self, found: Position) -> dict[int, int]:
        """A position, which names no other partitions than there are. DataLossError, or a warning, where it
        did."""
        offsets = offsets_of(found)
        gone = sorted(each for each in offsets if each >= len(self.streams))
        if gone:
            fault = (
                f"the checkpoint has partition {', '.join(map(str, gone))}, and the stream has"
                f" {len(self.streams)}"
            )
            if self.options.fail_on_data_loss:
                raise DataLossError(fault)
            log.warning("%s; what it had is passed over", fault)
        return {each: offset for each, offset in offsets.items() if each not in gone}

    def _asked(self) -> StreamOffsets:
        if self._broker is None:
            self._broker = StreamOffsets(self.options)
        return self._broker


class StreamTable:
    """A range of a stream as a table; ``streams`` are the addresses of the partitions."""

    def __init__(self, options: Options, streams: Sequence[str]) -> None:
        self.options = options
        self.streams = tuple(streams)

    def tasks(self, broker: StreamOffsets) -> list[InputPartition]:
        """What is read, by tasks. OptionError where the options name offsets that there are not."""
        extents = present_extents(broker, self.streams)
        start = first_offsets(self.options, broker, self.streams, extents, EARLIEST)
        extents = present_extents(broker, self.streams)
        end = named_offsets("endingOffsets", self.options.ending_offsets or LATEST, extents)
        backwards = [each for each in end if end[each] < start[each]]
        if backwards and self.options.starting_timestamp is None:
            raise OptionError(
                f"endingOffsets: partition {backwards[0]} ends at {end[backwards[0]]}, before it begins at"
                f" {start[backwards[0]]}"
            )
        ranges = [Range(each, start[each], end[each]) for each in sorted(end) if start[each] < end[each]]
        return tasks_of(ranges, self.options, self.streams, ids_in(extents))
