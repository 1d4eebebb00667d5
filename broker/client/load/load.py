"""The load generator: one job in, one line a second and one result out.

``python -m broker.client.load.load`` reads a Job as JSON on stdin and writes JSON lines: progress, then the
result. It runs in a process of its own, so that measuring never shares an interpreter with what it
measures or with a display.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from broker.client.load.loop import LoadLoop
from broker.codec import sections
from broker.errors import OperatorError, SluiceError

Progress = Callable[[dict[str, object]], None]

LEAST_BODY = 32  # bytes: the stamp
# A properties section with a group-id of so many digits at its end (AMQP 1.0 §3.2.4).
GROUP_DIGITS = 8
GROUP_PROPERTIES = b"\x00\x53\x73\xc0\x15\x0b" + b"\x40" * 10 + b"\xa1\x08" + b"0" * GROUP_DIGITS
# Application properties with one, "key", of so many digits at the end (§3.2.5).
KEY_PROPERTIES = b"\x00\x53\x74\xc1\x10\x02\xa1\x03key\xa1\x08" + b"0" * GROUP_DIGITS
ATTACH_S = 10.0
SLICE_S = 0.05  # between two looks at the clock while attaching and draining


@dataclass(frozen=True, slots=True)
class Job:
    """What to send and receive; sizes in bytes, times in seconds, ``rate`` in messages a second in all.

    ``count`` messages are sent if it is set, else as many as ``seconds`` allow. ``%d`` in the address
    becomes a connection's number. Senders commit every ``transaction`` messages, if that is set; receivers
    settle ``retire`` messages in a transaction, one transaction after another, and count them when it is
    committed. ``pid`` is a local broker whose processor time and memory to report. Without senders whatever
    is there is received, ``count`` messages of it if that is set. With ``groups`` each message has one of so
    many group-ids, in turn; with ``keys`` one of so many values of the application property ``key``.
    """

    url: str
    address: str = "bench"
    senders: int = 1
    receivers: int = 1
    body: int = 100
    window: int = 1000
    credit: int = 1000
    rate: float = 0.0
    presettled: bool = False
    transaction: int = 0
    retire: int = 0
    durable: bool = False
    seconds: float = 10.0
    warmup: float = 2.0
    count: int = 0
    max_backlog: int = 5000
    stall: float = 10.0
    groups: int = 0
    keys: int = 0
    pid: int | None = None

    def __post_init__(self) -> None:
        if self.body < LEAST_BODY:
            raise OperatorError(f"body must be at least {LEAST_BODY} bytes, the size of the stamp in it")
        if not 0 < self.senders + self.receivers <= 256 or min(self.senders, self.receivers) < 0:
            raise OperatorError("senders and receivers must be 1 to 256 together")
        if self.window < 1 or self.credit < 1 or self.seconds <= 0:
            raise OperatorError("window, credit and seconds must be above 0")
        if self.groups and self.keys:
            raise OperatorError("groups and keys can't be combined: a message has one number")
        if self.transaction and (self.presettled or self.transaction > self.window):
            raise OperatorError(
                "a transaction has at most as many messages as the window, and none is presettled"
            )
        # Credit is renewed when half of it is used, whether or not the messages are settled.
        if self.retire and (self.presettled or self.retire > self.credit):
            raise OperatorError(
                "a receiver's transaction has at most as many messages as the credit, and none is presettled"
            )


@dataclass(slots=True)
class Usage:
    """A process's processor time so far and its memory, from /proc."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0

    @classmethod
    def of(cls, pid: int | None) -> Usage | None:
        """What /proc says of ``pid``; None if it says nothing."""
        if pid is None:
            return None
        try:
            ticks = sum(
                int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            )
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        except OSError:
            return None
        return cls(ticks / 100, _kilobytes(status["VmRSS"]), _kilobytes(status["VmHWM"]))


def _kilobytes(text: str) -> int:
    return int(text.split()[0]) * 1024


@dataclass(slots=True)
class Mark:
    """The counters at one instant."""

    at_s: float
    done: int
    received: int
    usage: Usage | None


class LoadRun:
    """One job from connecting to the result; ``progress`` gets a dict each second measured."""

    def __init__(self, job: Job, progress: Progress = lambda _: None) -> None:
        self.job = _settled(job)
        self.progress = progress
        self.per_second: list[dict[str, object]] = []
        self.stalled = False
        body = bytes(97 + i % 26 for i in range(job.body))
        header = sections.header(durable=job.durable) + (
            GROUP_PROPERTIES if job.groups else KEY_PROPERTIES if job.keys else b""
        )
        self.loop = LoadLoop(
            secrets.randbits(63),
            header + sections.binary_body(body),
            job.body,
            self.job.senders,
            window=job.window,
            credit=job.credit,
            presettled=job.presettled,
            max_backlog=self.job.max_backlog,
            rate=job.rate,
            batch=job.transaction,
            retire=job.retire,
            groups=job.groups or job.keys,
            group_at=max(len(header) - GROUP_DIGITS, 0),
        )

    def run(self) -> dict[str, object]:
        """Does the job and returns its result. Raises ClientError as the broker gave it."""
        try:
            self._connect()
            return self._count() if self.job.count else self._timed()
        finally:
            self.loop.close()

    def _connect(self) -> None:
        job = self.job
        for is_sender, number in ((False, job.receivers), (True, job.senders)):
            for index in range(number):
                address = job.address.replace("%d", str(index))
                quota = _share(job.count, job.senders, index) if is_sender else 0
                self.loop.connect(job.url, address, is_sender=is_sender, index=index, quota=quota)
        deadline = time.monotonic() + ATTACH_S
        while not self.loop.attached:
            if time.monotonic() > deadline:
                raise OperatorError(f"the broker did not attach every link within {ATTACH_S:g} s")
            self.loop.spin(SLICE_S)

    def _timed(self) -> dict[str, object]:
        self.loop.begin()
        self.loop.spin(self.job.warmup)
        self.loop.measuring = True
        begin = last = self._mark()
        while (left_s := begin.at_s + self.job.seconds - time.monotonic()) > 0.001 and not self.stalled:
            self.loop.spin(min(1.0, left_s))
            last = self._second(last)
        end = self._mark()
        self.loop.measuring = False
        self._drain()
        return self._result(begin, end)

    def _count(self) -> dict[str, object]:
        self.loop.measuring = True
        begin = last = self._mark()
        self.loop.begin()
        while self._moved(last) < self.job.count and not self.stalled:
            if self.job.receivers:
                self.loop.spin(1.0, until_received=self.job.count)
            else:
                self.loop.spin(1.0, until_done=self.job.count)
            last = self._second(last)
        end = self._mark()
        self.loop.measuring = False
        self._drain()
        return self._result(begin, end)

    def _moved(self, mark: Mark) -> int:
        return mark.received if self.job.receivers else mark.done

    def _mark(self) -> Mark:
        return Mark(time.monotonic(), self.loop.done, self.loop.received, Usage.of(self.job.pid))

    def _second(self, last: Mark) -> Mark:
        """Reports what moved since ``last``; nothing for as long as ``stall`` ends the run."""
        now = self._mark()
        passed_s = max(now.at_s - last.at_s, 1e-9)
        line: dict[str, object] = {
            "in_s": round((now.done - last.done) / passed_s),
            "out_s": round((now.received - last.received) / passed_s),
            "backlog": self.loop.sent - self.loop.received - self.loop.refused if self.job.receivers else 0,
        }
        self.per_second.append(line)
        self.progress({"second": len(self.per_second)} | line)
        idle = [entry for entry in self.per_second[-max(int(self.job.stall), 1) :] if not _moves(entry)]
        self.stalled = len(idle) >= self.job.stall
        return now

    def _drain(self) -> None:
        """Lets what is under way arrive, as long as something still does."""
        self.loop.sending = False
        still = time.monotonic()
        before = -1
        while not self._drained() and time.monotonic() - still < 2:
            self.loop.spin(SLICE_S)
            moved = self.loop.done + self.loop.received
            if moved != before:
                still, before = time.monotonic(), moved

    def _drained(self) -> bool:
        loop = self.loop
        arrived = not self.job.receivers or loop.received >= loop.sent - loop.refused
        return arrived and loop.done >= loop.sent

    def _result(self, begin: Mark, end: Mark) -> dict[str, object]:
        loop, job = self.loop, self.job
        seconds = max(end.at_s - begin.at_s, 1e-9)
        moved = self._moved(end) - self._moved(begin)
        return {
            "job": asdict(replace(job, url=job.url.rpartition("@")[2])),
            "seconds": round(seconds, 3),
            "messages": moved,
            "in_s": round((end.done - begin.done) / seconds),
            "out_s": round((end.received - begin.received) / seconds),
            "latency_us": loop.latency_us(),
            "ack_us": loop.ack_us(),
            "sent": loop.sent,
            "settled": loop.done,
            "refused": loop.refused,
            "received": loop.received,
            "lost": loop.sent - loop.refused - loop.received if job.receivers and job.senders else 0,
            "duplicated": loop.repeated,
            "unordered": loop.unordered,
            "foreign": loop.foreign,
            "blocked_s": round(loop.blocked_ns / 1e9, 3),
            "stalled": self.stalled,
            "per_second": self.per_second,
            "load_cpu_s": round(time.process_time(), 2),
        } | _broker(begin.usage, end.usage, moved, seconds)


def _settled(job: Job) -> Job:
    """The job with what makes no sense in it switched off: no receiver, no closed loop."""
    return job if job.senders and job.receivers else replace(job, max_backlog=0)


def _share(count: int, senders: int, index: int) -> int:
    return count // senders + (index < count % senders)


def _moves(line: Mapping[str, object]) -> bool:
    return bool(line["in_s"] or line["out_s"])


def _broker(begin: Usage | None, end: Usage | None, moved: int, seconds: float) -> dict[str, object]:
    if begin is None or end is None:
        return {"broker_cpu_us": None, "broker_cpu_pct": None, "rss_mb": None, "peak_rss_mb": None}
    cpu_s = end.cpu_s - begin.cpu_s
    return {
        "broker_cpu_us": round(cpu_s / moved * 1e6, 3) if moved else None,
        "broker_cpu_pct": round(cpu_s / seconds * 100),
        "rss_mb": round(end.rss_bytes / 2**20, 1),
        "peak_rss_mb": round(end.peak_rss_bytes / 2**20, 1),
    }


def read_job(text: str) -> Job:
    """A Job from JSON. Raises OperatorError that names what it does not know."""
    given = json.loads(text)
    unknown = sorted(set(given) - {field.name for field in fields(Job)})
    if unknown:
        raise OperatorError(f"unknown in the job: {', '.join(unknown)}")
    return Job(**given)


def main() -> int:
    """Reads the job, writes progress and result; 1 with a line {"error": …} if it was refused."""

    def write(line: Mapping[str, object]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        write({"result": LoadRun(read_job(sys.stdin.read()), write).run()})
    except SluiceError as error:
        write({"error": str(error)})
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        # Nobody reads the result any more; Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
