"""A consumer's window that follows its settle rate and its round trip (FLOW §5, `dispatch: adaptive`).

Only this file estimates them. It knows no clock: whoever reports says when.
"""

from __future__ import annotations

from broker.flow.window import Window

# What a window holds beyond the round trip: as much again, at least so long. A broker and a client work
# in batches, and a window that reopens at half of itself must feed the client meanwhile (bench: adaptive).
HEADROOM_NS = 5_000_000
# How long a settle rate is measured at least.
RATED_NS = 5_000_000
# The most of it that trials may find useful, what a trial must bring in rate to be kept, what one with
# less may cost, and after how many epochs the next is made, at most.
MOST_HEADROOM_NS = 320_000_000
GAIN = 1.1
LOSS = 0.97
PATIENCE = 32
# How old the least round trip may be before it is measured anew, at least and in round trips.
STALE_NS = 10_000_000_000
STALE_TRIPS = 40
# A measurement narrows the window to this part of it, and is given up after that long or two trips.
NARROW = 4
NARROW_NS = 1_000_000_000
# Samples, and nanoseconds, for which a rate is remembered at least; after twice as many it is forgotten.
EPOCH_SAMPLES = 4
EPOCH_NS = 100_000_000
# How long a full window that nothing is settled from stays as it is, at first.
STUCK_NS = 1_000_000_000
# The limit where the settings have none: a link's deliveries have 32-bit serial numbers (AMQP 1.0 §2.8.10).
MOST = 1 << 20


class Adaptive:
    """Sizes one window: ``settle rate x (round trip + headroom)``, within its bounds.

    After BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016), without its pacing:

    1. One delivery at a time is watched, with those sent in the same turn. It is taken for settled when as
       many were settled since as were unsettled when it was sent: that took a round trip. When all that
       were sent with it are, that is a sample; the settle rate is of as many samples as last RATED_NS,
       for a client that is handed a batch may settle it far faster than it gets the next.
    2. The rate is the largest of the last samples, the round trip the least: a longer one is messages
       waiting in the client. So a window that is too small doubles each round trip, for headroom is
       another round trip, until a larger one brings no more.
    3. While the window was never full it limited nothing: such samples lower the rate by half an epoch at
       most, so that a pause doesn't undo what was found out.
    4. A least round trip that is old may be wrong, for a window's own queue is part of every later one.
       Then the window narrows to a quarter for a round trip, and what that takes is the new one.
    5. Delays that aren't the client's queue (a busy machine, batches on the way) can make a round trip longer
       than the least one for good. So now and then the headroom is doubled for an epoch, and stays so if the
       rate rose with it; what was added so goes again once the rate doesn't need it.
    6. A client may settle in batches larger than the window (a transaction, an acknowledgement of many).
       It is never smaller than the largest batch, and a full window from which nothing is settled doubles
       in time.

    The caller reports ``sent`` and ``settled`` after the window knows of it, and ``look`` once a second.
    """

    def __init__(self, window: Window, least: int, most: int, threshold: int, now_ns: int) -> None:
        self.window = window
        self.least = 0
        self.most = 0
        self.threshold = threshold
        self.size = 0
        # The watched delivery: when it was sent, and how many are to be settled until it is and until all
        # that went with it are; 0 for none.
        self.since_ns = 0
        self.first = 0
        self.awaited = 0
        self.counted = 0
        self.took_ns = 0
        # Since when the rate is measured, 0 for not now, and what was settled since.
        self.rated_ns = 0
        self.rated = 0
        self.shut_count = 0
        self.trip_ns = 0
        self.last_trip_ns = 0
        self.trip_at_ns = now_ns
        # The largest of this epoch and of the one before.
        self.rate = self.rate_before = self.last_rate = 0.0
        self.burst = self.burst_before = 0
        self.samples = 0
        self.epoch_ns = now_ns
        self.settled_ns = now_ns
        self.batch = 0
        self.stuck_ns = STUCK_NS
        self.narrow_ns = 0
        # Since the epoch began; `partly`: the window didn't always limit.
        self.count = 0
        self.partly = False
        self.headroom_ns = HEADROOM_NS
        # A trial of another headroom: what it was, 0 for none, and the rate before it.
        self.usual_ns = 0
        self.usual_rate = 0.0
        self.patience = 1
        self.rest = 1
        self.configure(least, most, threshold)

    def configure(self, least: int, most: int, threshold: int) -> None:
        """New bounds and a new threshold; the window moves into them at once."""
        self.most = most or MOST
        self.least = min(least, self.most)
        self.threshold = threshold
        self.narrow_ns = 0
        self.window.configure(self.window.limit, threshold)
        self._resize(self.size)

    def sent(self, now_ns: int) -> None:
        """One more was sent."""
        if self.awaited == 0:
            self.first = self.awaited = self.window.unsettled
            self.since_ns = now_ns
            self.counted = 0
            if self.rated_ns == 0:
                self.rated_ns = now_ns
                self.rated = 0
                self.shut_count = self.window.shut_count - self.window.shut
        elif self.since_ns == now_ns and self.counted == 0:
            self.awaited = self.window.unsettled

    def settled(self, now_ns: int) -> None:
        """One more was settled."""
        if now_ns != self.settled_ns:
            self.settled_ns = now_ns
            self.batch = 0
            self.stuck_ns = STUCK_NS
        self.batch += 1
        self.rated += 1
        self.count += 1
        if self.batch > self.burst:
            self.burst = self.batch
            if self.batch > self.size:
                self._resize(self.batch)
        if self.awaited > 0:
            self.counted += 1
            if self.counted == self.first:
                self.took_ns = max(now_ns - self.since_ns, 1)
            if self.counted >= self.awaited:
                self._sample(now_ns)

    def look(self, now_ns: int) -> None:
        """Do what is due though nothing happened: widen what is stuck, give up what takes too long."""
        if self.narrow_ns:
            if now_ns - self.narrow_ns > max(NARROW_NS, 2 * self.last_trip_ns):
                self._widen(now_ns)
        elif self.window.shut and now_ns - self.settled_ns > max(self.stuck_ns, 4 * self.trip_ns):
            self._resize(self.size * 2)
            if self.trip_ns:
                # It has settled before, and may only be slow.
                self.stuck_ns *= 2
            self.settled_ns = now_ns

    def _sample(self, now_ns: int) -> None:
        trip_ns = self.took_ns
        self.last_trip_ns = max(now_ns - self.since_ns, 1)
        self.awaited = 0
        if self.narrow_ns:
            self.trip_ns = trip_ns
            self._widen(now_ns)
            return
        if self.trip_ns == 0 or trip_ns <= self.trip_ns + (self.trip_ns >> 3):
            self.trip_at_ns = now_ns
            if self.trip_ns == 0 or trip_ns < self.trip_ns:
                self.trip_ns = trip_ns
        if now_ns - self.rated_ns < RATED_NS:
            return
        rate = self.rated * 1e9 / (now_ns - self.rated_ns)
        self.rated_ns = 0
        self.last_rate = rate
        if rate > self.rate:
            self.rate = rate
        limited = self.window.shut_count > self.shut_count
        if not limited:
            self.partly = True
        self.samples += 1
        if self.samples >= EPOCH_SAMPLES and now_ns - self.epoch_ns >= EPOCH_NS:
            self._next_epoch(now_ns, rate if limited else max(rate, self.rate / 2))
        self._resize(self._target())
        if limited and now_ns - self.trip_at_ns > max(STALE_NS, STALE_TRIPS * self.trip_ns):
            self._narrow(now_ns)

    def _next_epoch(self, now_ns: int, rate: float) -> None:
        if not self.partly:
            self._try(self.count * 1e9 / (now_ns - self.epoch_ns))
        elif self.usual_ns:
            self._end_trial(False)
        self.samples = self.count = 0
        self.partly = False
        self.epoch_ns = now_ns
        self.rate_before, self.rate = self.rate, rate
        self.burst_before, self.burst = self.burst, self.batch

    def _try(self, rate: float) -> None:
        """Judge the headroom of the epoch that ends, or try another in the next."""
        if self.usual_ns:
            wider = self.headroom_ns > self.usual_ns
            self._end_trial(rate > self.usual_rate * (GAIN if wider else LOSS))
        if self.rest > 0:
            self.rest -= 1
            return
        self.usual_ns = self.headroom_ns
        self.usual_rate = rate
        if self.patience & 2 and self.headroom_ns > HEADROOM_NS:
            self.headroom_ns = max(self.headroom_ns // 2, HEADROOM_NS)
        else:
            self.headroom_ns = min(max(self.headroom_ns, self.trip_ns) * 2, MOST_HEADROOM_NS)

    def _end_trial(self, kept: bool) -> None:
        if kept:
            self.rest = self.patience = 0
        else:
            self.headroom_ns = self.usual_ns
            self.patience = min(self.patience + 1, PATIENCE)
            self.rest = self.patience
        self.usual_ns = 0

    def _target(self) -> int:
        rate = max(self.rate, self.rate_before)
        burst = max(self.burst, self.burst_before)
        return max(int(rate * (self.trip_ns + max(self.trip_ns, self.headroom_ns)) / 1e9), burst)

    def _narrow(self, now_ns: int) -> None:
        self.narrow_ns = now_ns
        self.partly = True
        self.awaited = self.rated_ns = 0
        # With another round trip comes another rate: what was is forgotten, but for the last sample.
        self.rate, self.rate_before = self.last_rate, 0.0
        least = max(self.burst, self.burst_before, 1)
        self.window.configure(min(max(self.size // NARROW, least), self.size), self.threshold)

    def _widen(self, now_ns: int) -> None:
        self.narrow_ns = 0
        self.trip_at_ns = now_ns
        self.size = 0
        self._resize(self._target())

    def _resize(self, size: int) -> None:
        size = min(max(size, self.least), self.most)
        if size != self.size or self.window.limit != size:
            self.size = size
            self.window.configure(size, self.threshold)


# Who sizes the windows of a node's consumers, by its `dispatch`; the others' windows stay as they are set.
SIZED: dict[str, type[Adaptive]] = {"adaptive": Adaptive}
