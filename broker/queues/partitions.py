"""Which partition of a stream a message goes to: all of one group-id to the same, in the order they came."""

from __future__ import annotations

import zlib

from broker.codec.grouping import group_id


def partition_of(data: bytes, partitions: int) -> int:
    """Return the partition, from 0 on, of an encoded message.

    CRC-32 (IEEE 802.3) of the group-id's UTF-8, or, without one, of the whole message, modulo their number:
    anybody can tell it beforehand, and it is the same whenever it is asked.
    """
    return zlib.crc32(group_id(data) or data) % partitions


class Partitioning:
    """The choice among so many partitions, made once for each message that is shown to all of them."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._data: bytes | None = None
        self._chosen = 0

    def chosen(self, data: bytes) -> int:
        """Return the partition of a message."""
        if data is not self._data:
            self._data = data
            self._chosen = partition_of(data, self.partitions)
        return self._chosen


class PartitionFilter:
    """Wants the messages of one partition (``queues.queue.Filter``)."""

    def __init__(self, partitioning: Partitioning, partition: int) -> None:
        self._partitioning = partitioning
        self._partition = partition

    def matches(self, data: bytes) -> bool:
        """Return whether a message is this partition's."""
        return self._partitioning.chosen(data) == self._partition
