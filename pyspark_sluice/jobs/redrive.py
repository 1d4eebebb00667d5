"""Dead letters back to where they were going, byte for byte: ids, properties and annotations stay.

Runs on the executors, each task with its own letters. A letter is taken by its message-id, brought to its
target, and settled in the dead-letter queue only when the target has accepted it: after a failure in between
it is in both, under one id, which a duplicate_window at the target tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from broker.errors import OperatorError
from pyspark_sluice.errors import OptionError
from pyspark_sluice.jobs import connector, tables
from pyspark_sluice.options import Options, parse
from pyspark_sluice.receiver import Receiver
from pyspark_sluice.sender import Sender

MOVED: tables.Columns = {
    "queue": "string",
    "target": "string",
    "asked": "long",
    "moved": "long",
}
# What the broker takes of a selector (broker.queues.selector.selector), with some room.
MOST_LENGTH, MOST_IDS = 7500, 500
PATIENCE_S = 60.0


def redrive(batches: Iterable[pa.RecordBatch], options: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """For rows of ``queue``, ``target`` and ``message_id``: how many went which way."""
    for rows in batches:
        ways: dict[tuple[str, str], list[str]] = {}
        for row in rows.to_pylist():
            ways.setdefault((row["queue"], row["target"]), []).append(row["message_id"])
        for (queue, target), ids in ways.items():
            moved = sum(_moved(queue, target, some, options) for some in chunks(ids))
            counted = {"queue": queue, "target": target, "asked": len(ids), "moved": moved}
            yield tables.batch(MOVED, [counted])


def check(options: Mapping[str, str]) -> None:
    """OperatorError for options that one of the ends can't have."""
    try:
        _source("queue", ["id"], options)
        _sink("target", options)
    except OptionError as error:
        raise OperatorError(str(error)) from error


def _source(queue: str, ids: list[str], options: Mapping[str, str]) -> Options:
    mine = connector.of_end(options, "source")
    return parse({**mine, "address": queue, "selector": selector(ids)}, "source")


def _sink(target: str, options: Mapping[str, str]) -> Options:
    mine = connector.of_end(options, "sink")
    return parse({**mine, "address": target, "onReject": "fail"}, "sink")


def chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    """As many as one selector may name."""
    some: list[str] = []
    length = 0
    for each in ids:
        size = sum(len(literal) + 1 for literal in _literals(each))
        if some and (length + size > MOST_LENGTH or len(some) == MOST_IDS):
            yield some
            some, length = [], 0
        some.append(each)
        length += size
    if some:
        yield some


def selector(ids: Iterable[str]) -> str:
    """The messages with these ids."""
    return f"amqp.message_id IN ({','.join(literal for each in ids for literal in _literals(each))})"


def _literals(message_id: str) -> list[str]:
    """An id as a selector spells it; a binary one is upper-case there, whatever it was shown as."""
    spelled = {message_id: None}
    if len(message_id) % 2 == 0 and all(each in "0123456789abcdef" for each in message_id):
        spelled[message_id.upper()] = None
    return ["'" + each.replace("'", "''") + "'" for each in spelled]


def _moved(queue: str, target: str, ids: list[str], options: Mapping[str, str]) -> int:
    """Those of the letters that are still there: taken, accepted by the target, and only then settled."""
    to = _sink(target, options)
    receiver = Receiver(_source(queue, ids, options))
    receiver.start()
    try:
        letters = receiver.take(len(ids), None, wait_s=0.0, patience_s=PATIENCE_S)
        if letters is None:
            raise OperatorError(f"{queue}: the broker has not given its letters within {PATIENCE_S:.0f} s")
        if letters:
            _send(to, letters)
            receiver.settle(len(letters))
        return len(letters)
    finally:
        receiver.close()


def _send(to: Options, letters: list[bytes]) -> None:
    """Returns when the target has accepted all of them; raises why it has not."""
    sender = Sender(to, "spark-redrive")
    sender.start()
    try:
        sender.put(iter(letters))
        accepted = sender.finish().accepted
        if accepted != len(letters):
            raise OperatorError(f"{to.address} has accepted {accepted} of {len(letters)} letters")
    finally:
        sender.close()
