"""One broker's events: watched on the engine's thread, told on others. The server starts and stops it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.engine.engine import Engine
from broker.manage.events.log import EventLog
from broker.manage.events.observer import TOPIC, NodeObserver
from broker.manage.events.writer import EventWriter
from broker.units import MB

# How long a first event waits for others to go with it.
BATCH_NS = 20_000_000
# Between two parts of a look at many nodes.
PAUSE_NS = 2_000_000
MILLISECOND_NS = 1_000_000
# Messages put into the topic in one piece of work for the reactor.
AT_ONCE = 200
# How long a stop waits for each thread.
STOP_S = 2.0

# What a subscriber that doesn't keep up may be behind; then it loses its oldest.
BACKLOG: Mapping[str, object] = {
    "kind": "topic",
    "overflow": "ring",
    "max_count": 10_000,
    "max_size": 16 * MB,
    "flow_control": False,
}


@dataclass(frozen=True, slots=True)
class LoopClock:
    """What the reactor offers: a timer on its own thread, and a way to it from others."""

    at: Callable[[int, Callable[[int], None]], None]
    post: Callable[[Callable[[], None]], None]


class EventHistory:
    """Events of one engine from ``start`` to ``stop``. ``file`` None writes none.

    All but ``recent`` is called on the engine's thread.
    """

    def __init__(
        self,
        engine: Engine,
        clockwork: LoopClock,
        held_by: Callable[[str], str],
        file: Path | None,
        max_bytes: int,
        keep: int,
        sample_ms: int,
    ) -> None:
        self.engine = engine
        self.watch = NodeObserver(engine, self._arm, held_by)
        self.teller = EventWriter(engine.turn.epoch_ns, self._publish)
        self._clockwork = clockwork
        self._sample_ms = sample_ms
        if file is not None:
            self.teller.log = EventLog(file, max_bytes, keep, self._lost_line)

    def start(self, version: str, pid: int) -> None:
        """Begin to listen; what survived a restart is not told again."""
        fields = {"version": version, "pid": pid, "sample_interval_ms": self._sample_ms}
        self.watch.tell("started", None, fields)
        self.watch.listen()
        self._clockwork.at(self.engine.turn.now_ns + self._sample_ms * MILLISECOND_NS, self._look)

    def stop(self) -> None:
        """Tell what is left and let the threads go; the reactor doesn't turn any more."""
        while self.watch.look(self.engine.turn.now_ns):
            pass
        self.teller.give(self.watch.take(), False)
        self.teller.stop(STOP_S)
        if self.teller.log is not None:
            self.teller.log.stop(STOP_S)

    def recent(self, count: int, samples: bool = True) -> list[bytes]:
        """The last events, oldest first, each one line of JSON; any thread may ask."""
        return self.teller.recent(count, samples)

    def _look(self, now_ns: int, began_ns: int = 0) -> None:
        began_ns = began_ns or now_ns
        if self.watch.look(now_ns):
            self._clockwork.at(now_ns + PAUSE_NS, lambda now: self._look(now, began_ns))
        else:
            following = began_ns + self._sample_ms * MILLISECOND_NS
            self._clockwork.at(max(following, now_ns + PAUSE_NS), self._look)

    def _arm(self) -> None:
        self._clockwork.at(self.engine.turn.now_ns + BATCH_NS, self._flush)

    def _flush(self, now_ns: int) -> None:
        if not self.teller.has_room():
            # The rest of the batch fills up meanwhile; beyond its bound events are counted as lost.
            self._clockwork.at(now_ns + BATCH_NS, self._flush)
            return
        topic = self.engine.topology.nodes.get(TOPIC)
        self.teller.give(self.watch.take(), topic is not None and bool(topic.subscriptions))

    def _publish(self, messages: list[bytes]) -> None:
        """On the teller's thread."""
        for start in range(0, len(messages), AT_ONCE):
            part = messages[start : start + AT_ONCE]
            self._clockwork.post(lambda part=part: self._put(part))  # type: ignore[misc]

    def _put(self, messages: list[bytes]) -> None:
        topic = self.engine.topology.nodes.get(TOPIC)
        if topic is None or self.engine.delivery.winding_down:
            return
        for message in messages:
            self.engine.intake.put(topic, message, 0)

    def _lost_line(self, seq: int, now_ns: int, count: int) -> bytes:
        return self.teller.line((seq, "lost", now_ns, None, {"count": count, "where": "file"}))
