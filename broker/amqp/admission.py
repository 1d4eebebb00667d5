"""Who is let in: the present rules, who has to wait, and the thread that works out what takes long.

The reactor asks it for every socket; nothing of it is asked once a connection is open.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from broker.amqp.sasl import Handshake
from broker.security.authentication import BY_PASSWORD, Authentication
from broker.security.exchange import Accepted, Door, Refused
from broker.security.identity import Identity
from broker.security.throttle import Attempts, key_of
from broker.security.vocabulary import Security
from broker.security.worker import Worker

if TYPE_CHECKING:
    from broker.amqp.peer import Peer

SUCCESS, FAILURE = "success", "failure"
WITHOUT_SASL = "none"
UNKNOWN = "unknown"
# Of one address.
MOST_WAITING = 100
BUSY = Refused("too many attempts at once", is_guess=False, is_busy=True)

Done = Callable[[Accepted | Refused], None]
Post = Callable[[Callable[[], None]], None]
Now = Callable[[], int]


@dataclass(frozen=True, slots=True)
class _Task:
    handshake: Handshake
    blocked: Callable[[], int]
    post: Post
    done: Done


class Admission:
    """``authentication`` holds for handshakes that begin from now on.

    ``totals`` counts by mechanism and outcome; both are of few words, whatever clients say.
    """

    def __init__(self, authentication: Authentication, attempts: Attempts | None = None) -> None:
        self.authentication = authentication
        self.attempts = Attempts() if attempts is None else attempts
        self.totals: Counter[tuple[str, str]] = Counter()
        # By address, beside the one that is worked on.
        self._queues: dict[str, deque[_Task]] = {}
        self._worker = Worker()

    def handshake(self, address: str, allow_plain: bool, door: Door, now: Now) -> Handshake:
        """A new client's."""
        blocked = partial(self._blocked, address, now)
        return Handshake(allow_plain, self.authentication, door, blocked)

    def _blocked(self, address: str, now: Now) -> int:
        return self.attempts.blocked(address, now())

    def work(self, handshake: Handshake, address: str, now: Now, post: Post, done: Done) -> None:
        """Do a handshake's work elsewhere; ``done`` gets the result by way of ``post``, never at once.

        One address's are done one after the other: what it got wrong counts before its next is looked at,
        and it doesn't keep others waiting.
        """
        key = key_of(address)
        task = _Task(handshake, partial(self._blocked, address, now), post, done)
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque()
            self._start(key, task)
        elif len(queue) < MOST_WAITING:
            queue.append(task)
        else:
            post(partial(done, BUSY))

    def _start(self, key: str, task: _Task) -> None:
        def hand_over(result: Accepted | Refused) -> None:
            task.post(partial(finish, result))

        def finish(result: Accepted | Refused) -> None:
            task.done(result)
            queue = self._queues[key]
            if queue:
                self._start(key, queue.popleft())
            else:
                del self._queues[key]

        work = task.handshake.work
        # None: it has gone away meanwhile.
        if work is None or task.blocked() or not self._worker.submit(work, hand_over):
            hand_over(BUSY)

    def settled(self, handshake: Handshake, address: str, now_ns: int) -> None:
        """A handshake has come to its outcome, one way or the other; each counts once."""
        if handshake.is_counted:
            return
        handshake.is_counted = True
        if handshake.failed:
            if handshake.is_guess:
                self.attempts.failed(address, now_ns)
            self.totals[handshake.mechanism or UNKNOWN, FAILURE] += 1
            return
        mechanism = handshake.mechanism or WITHOUT_SASL
        if mechanism not in (WITHOUT_SASL, "ANONYMOUS", "EXTERNAL"):
            self.attempts.succeeded(address)
        self.totals[mechanism, SUCCESS] += 1

    def reload(self, authentication: Authentication, security: Security, peers: Iterable[Peer]) -> None:
        """Other rules and users hold from now on. Who is there keeps its place with its new groups; who is
        no user any more has to go.
        """
        self.authentication = authentication
        self.attempts.free = security.free_attempts
        self.attempts.first_ms = security.first_pause_ms
        self.attempts.longest_ms = security.longest_pause_ms
        for peer in list(peers):
            identity = self.renewed(peer.identity)
            if identity is None:
                peer.close("amqp:unauthorized-access", f"'{peer.identity.user}' is no user any more")
            else:
                peer.identity = identity

    def renewed(self, identity: Identity) -> Identity | None:
        """Whoever came in by earlier rules, as the present ones see them; None if they have to go."""
        users = self.authentication.known()
        proved = identity.proved or identity.user
        if identity.mechanism in BY_PASSWORD and proved not in users:
            return None
        if not users.may_act_as(proved, identity.user):
            return None
        if identity.mechanism in BY_PASSWORD or identity.mechanism == "EXTERNAL":
            return replace(identity, groups=users.groups(identity.user))
        return identity

    def stop(self) -> None:
        """Nobody comes any more."""
        self._worker.stop()
