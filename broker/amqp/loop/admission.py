"""Admission of clients: the present rules, waiting after failures, and a thread for what takes long.

The reactor asks it for every socket; nothing of it is asked once a connection is open.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from broker.amqp.control.sasl import Handshake
from broker.config.security import Security
from broker.security.authentication import BY_PASSWORD, BY_TOKEN, Authentication
from broker.security.exchange import Accepted, ListenerTrust, Refused
from broker.security.identity import Identity
from broker.security.throttle import Attempts, key_of
from broker.security.worker import Worker

if TYPE_CHECKING:
    from broker.amqp.control.live import LiveConnection
    from broker.security.tokens import TokenRules

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
        # By address, passwords and tokens apart, beside the one that is worked on.
        self._queues: dict[tuple[str, bool], deque[_Task]] = {}
        self._worker = Worker()
        # An issuer that is slow to give its keys holds up nobody with a password.
        self._token_worker = Worker()
        # Handshakes whose tokens are checked by the issuer that is believed now.
        self._believing: WeakSet[Handshake] = WeakSet()

    def handshake(self, address: str, allow_plain: bool, door: ListenerTrust, now: Now) -> Handshake:
        """A new client's."""
        blocked = partial(self._blocked, address, now)
        handshake = Handshake(allow_plain, self.authentication, door, blocked)
        self._believing.add(handshake)
        return handshake

    def handed(self, identity: Identity, door: ListenerTrust, seconds: float) -> Handshake:
        """Return the handshake of a client that came through it in another cell, which has the same rules."""
        handshake = Handshake(False, self.authentication, door)
        handshake.take_over(identity, seconds)
        self._believing.add(handshake)
        return handshake

    def _blocked(self, address: str, now: Now) -> int:
        return self.attempts.blocked(address, now())

    def work(self, handshake: Handshake, address: str, now: Now, post: Post, done: Done) -> None:
        """Do a handshake's work elsewhere; ``done`` gets the result by way of ``post``, never at once.

        One address's passwords are done one after the other, and its tokens: what it got wrong counts before
        its next is looked at, and it doesn't keep others waiting.
        """
        key = key_of(address), handshake.mechanism in BY_TOKEN
        task = _Task(handshake, partial(self._blocked, address, now), post, done)
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque()
            self._start(key, task)
        elif len(queue) < MOST_WAITING:
            queue.append(task)
        else:
            post(partial(done, BUSY))

    def _start(self, key: tuple[str, bool], task: _Task) -> None:
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
        worker = self._token_worker if key[1] else self._worker
        # None: it has gone away meanwhile.
        if work is None or task.blocked() or not worker.submit(work, hand_over):
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

    def reload(
        self, authentication: Authentication, security: Security, peers: Iterable[LiveConnection]
    ) -> None:
        """Other rules and users hold from now on. Who is there keeps its place with its new groups; who is
        no user any more, or came in by what lets nobody in there any more, has to go.
        """
        doubted = _believed(self.authentication) != _believed(authentication)
        self.authentication = authentication
        if doubted:
            self._believing.clear()
        self.attempts.free = security.free_attempts
        self.attempts.first_ms = security.first_pause_ms
        self.attempts.longest_ms = security.longest_pause_ms
        for peer in list(peers):
            old = peer.identity
            identity = None if doubted and old.mechanism in BY_TOKEN else self._renewed(old, peer.door)
            if identity is None:
                peer.close("amqp:unauthorized-access", why_gone(old))
            else:
                peer.identity = identity

    def arrived(self, handshake: Handshake) -> Identity | None:
        """Who has come through a handshake, which may have begun by earlier rules, as the present ones see
        them; None if they may not stay.
        """
        if handshake.identity is None:
            return None
        if handshake.mechanism in BY_TOKEN and handshake not in self._believing:
            return None
        return self._renewed(handshake.identity, handshake.door)

    def _renewed(self, identity: Identity, door: ListenerTrust) -> Identity | None:
        users, how = self.authentication.known(), identity.mechanism
        proved = identity.proved or identity.user
        # A password's proof is worth what the user is, by whichever mechanism it came.
        is_in = proved in users if how in BY_PASSWORD else self._lets_in(how, door)
        if not is_in or not users.may_act_as(proved, identity.user):
            return None
        if how in BY_PASSWORD or how == "EXTERNAL":
            return replace(identity, groups=users.groups(identity.user))
        return identity

    def _lets_in(self, mechanism: str, door: ListenerTrust) -> bool:
        """Whether somebody may come in there by that; '' is without SASL."""
        if not mechanism:
            return self.authentication.lets_anonymous(door)
        return mechanism in self.authentication.offered(door)

    def stop(self) -> None:
        """Nobody comes any more."""
        self._worker.stop()
        self._token_worker.stop()


def why_gone(identity: Identity) -> str:
    """Return the reason for a client that was let in by earlier rules and may not stay."""
    if identity.mechanism in BY_PASSWORD:
        return f"'{identity.user}' is no user any more"
    return f"'{identity.user}' is let in no more by {identity.mechanism or 'a connection without SASL'}"


def _believed(authentication: Authentication) -> TokenRules | None:
    return None if authentication.tokens is None else authentication.tokens.rules
