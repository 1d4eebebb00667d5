"""A thread that turns events into lines and messages, for the file, the topic and whoever asks."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from broker.manage.events.encode import encode
from broker.manage.events.log import EventLog, Line
from broker.manage.events.observer import Event
from broker.manage.events.schema import VERSION

log = logging.getLogger("sluice.events")

# Events kept for who asks for the last ones, and as many samples.
MOST_RECENT = 1000
# Events that may wait for this thread.
MOST_WAITING = 50_000
NS_PER_S = 1_000_000_000

Publish = Callable[[list[bytes]], None]


class EventWriter:
    """``give`` never waits. ``publish`` is called on the teller's thread with encoded messages."""

    def __init__(self, epoch_ns: int, publish: Publish) -> None:
        self.epoch_ns = epoch_ns
        self.log: EventLog | None = None
        self._publish = publish
        self._batches: queue.SimpleQueue[tuple[list[Event], bool] | None] = queue.SimpleQueue()
        # Each counted by one thread alone.
        self._given = self._taken = 0
        self._recent: deque[Line] = deque(maxlen=MOST_RECENT)
        self._samples: deque[Line] = deque(maxlen=MOST_RECENT)
        self._thread = threading.Thread(target=self._run, name="sluice-events", daemon=True)
        self._thread.start()

    def has_room(self) -> bool:
        """Whether another batch may be given."""
        return self._given - self._taken < MOST_WAITING

    def give(self, events: list[Event], wanted: bool) -> None:
        """Tell of them; ``wanted``: somebody has subscribed to the topic."""
        self._given += len(events)
        self._batches.put((events, wanted))

    def recent(self, count: int, samples: bool) -> list[bytes]:
        """The last events, oldest first, as JSON, with or without samples; any thread may ask."""
        if count <= 0:
            return []
        found = [*self._recent.copy(), *(self._samples.copy() if samples else ())]
        return [line for _, _, line in sorted(found)[-count:]]

    def stop(self, seconds: float) -> None:
        """Tell what was given and leave."""
        self._batches.put(None)
        self._thread.join(seconds)

    def line(self, event: Event) -> bytes:
        """The event as one line of JSON."""
        seq, kind, now_ns, node, fields = event
        whole = {
            "v": VERSION,
            "seq": seq,
            "time": self._time(now_ns),
            "mono_ns": now_ns,
            "event": kind,
            "node": node,
            **fields,
        }
        text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False, default=str)
        return text.encode("utf-8", "replace") + b"\n"

    def _time(self, now_ns: int) -> str:
        seconds, rest = divmod(self.epoch_ns + now_ns, NS_PER_S)
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"

    def _run(self) -> None:
        while (given := self._batches.get()) is not None:
            events, wanted = given
            try:
                self._tell(events, wanted)
            except Exception:
                log.exception("events could not be told")
            self._taken += len(events)

    def _tell(self, events: Sequence[Event], wanted: bool) -> None:
        lines: list[Line] = [(event[0], event[2], self.line(event)) for event in events]
        for event, line in zip(events, lines, strict=True):
            (self._samples if event[1] == "sample" else self._recent).append(line)
        if self.log is not None:
            self.log.offer(lines)
        if wanted:
            pairs = zip(events, lines, strict=True)
            self._publish([message_of(event, line[2]) for event, line in pairs])


def message_of(event: Event, line: bytes) -> bytes:
    """An AMQP message: the JSON as data; what to select by as application properties."""
    seq, kind, _, node, _ = event
    properties: Mapping[str, str | int] = {"event": kind, "node": node or "", "seq": seq, "v": VERSION}
    return encode(kind, "application/json", properties, line.rstrip(b"\n"))
