"""From a request to whoever makes it: by a password, a bearer token or the cookie of a login.

Nothing behind the reception sees a request whose caller isn't settled. Used on the HTTP loop's thread only;
passwords are checked in threads of their own (``credentials``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

from broker.config.networks import written
from broker.http.server import cookies
from broker.http.server.access import Access
from broker.http.server.calls import Ask
from broker.http.server.credentials import LoginDelay, Passwords, Throttle, basic, challenge, scheme
from broker.http.server.request_rate import RequestRate
from broker.http.server.sessions import Session, Sessions
from broker.http.server.threads import Threads
from broker.loggers import about
from broker.manage.access import AccessControl, refusal
from broker.security.acl import Action
from broker.security.bearer import LONGEST_TOKEN
from broker.security.exchange import TokenError
from broker.security.identity import ANONYMOUS, Identity
from broker.security.users import Users

if TYPE_CHECKING:
    from broker.security.tokens import Tokens

log = logging.getLogger("sluice.http")

CALLER = "sluice.caller"
PASSWORD, TOKEN, SESSION, CERTIFICATE = "password", "token", "session", "certificate"
# Where a request's state says whom the client's certificate names, if it has one.
# And until when, in seconds since the epoch.
EXTERNAL_USER, EXTERNAL_UNTIL_S = "external_user", "external_until_s"
# What a login is recognized by later: the user's verifiers, whatever else there is.
PROOF = ("SCRAM-SHA-256", "SCRAM-SHA-512")
WHO = "say who you are: a user and password, a token, or a login at /api/v1/session"
WRONG = "this user and password are not known here"
READABLE = "passwords and tokens are taken over TLS only, unless security.plain_without_tls is true"
SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose a request is, and by what that is known; ``again`` tells later who it is then, None for nobody
    who is let in.
    """

    identity: Identity
    by: str = ""
    again: Callable[[], Identity | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that is turned away at the reception."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()


NOBODY = Caller(ANONYMOUS)


class LoginsElsewhere(Protocol):
    """Logins that other cells of this machine keep, by their tokens; ``mark`` is what those of this one begin
    with.
    """

    mark: str

    @property
    def cells(self) -> int:
        """How many cells there are."""
        ...

    def is_elsewhere(self, token: str) -> bool:
        """Whether another cell keeps it."""
        ...

    async def caller(self, token: str) -> Caller | None:
        """Return whose it is, None for nobody's."""
        ...

    async def end(self, token: str) -> bool:
        """End it; whether its cell has done it."""
        ...


class HttpAuthenticator:
    """Who may come in, by ``access``, and may connect, by ``authority``; it holds the sessions, and how often
    each address asks.
    """

    def __init__(
        self,
        access: Access,
        authority: AccessControl,
        ask: Ask,
        threads: Threads,
        now_ns: Callable[[], int] = time.monotonic_ns,
        elsewhere: LoginsElsewhere | None = None,
    ) -> None:
        self.access = access
        self._authority = authority
        self._elsewhere = elsewhere
        self.sessions = Sessions(0, 0, mark="" if elsewhere is None else elsewhere.mark)
        self._take_times()
        self._passwords = Passwords(access.attempts, ask, threads, now_ns)
        self._throttle = Throttle(access.attempts, ask, now_ns)
        self._threads = threads
        self._now_ns = now_ns
        self._writes = RequestRate(access.rates.writes)
        self._logins = RequestRate(access.rates.logins)

    async def enter(self, scope: Scope) -> Caller | Rejected:
        """Whose the request is; nobody's where nobody needs to say."""
        self._take_times()
        found = await self._found(scope)
        if isinstance(found, Rejected):
            return found
        return self._barred(scope, found.identity, found.by) or found

    def now(self, caller: Caller) -> Identity | None:
        """Who a caller is by the users, settings and rules that hold by now; None if nobody to be let in."""
        identity = caller.again()
        return identity if identity is not None and self._connects(identity) else None

    async def _found(self, scope: Scope) -> Caller | Rejected:
        said = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(said) > 1:
            return Rejected(400, "more than one Authorization")
        if said and self.access.authentication().is_configured:
            return await self._by_header(scope, *scheme(said[0]))
        for token in cookies.tokens(scope):
            found = await self._by_token_of_session(token)
            if found is not None:
                return found
        external = self._by_certificate(scope)
        if external is not None:
            return Caller(external, CERTIFICATE, partial(self._by_certificate, scope))
        if self._nobody(scope) is not None:
            return Caller(ANONYMOUS, again=partial(self._nobody, scope))
        return self._unknown(scope, WHO)

    @property
    def cells(self) -> int | None:
        """How many cells the broker has, None where it is a single one."""
        return None if self._elsewhere is None else self._elsewhere.cells

    async def _by_token_of_session(self, token: str) -> Caller | None:
        if self._elsewhere is not None and self._elsewhere.is_elsewhere(token):
            return await self._elsewhere.caller(token)
        return self._by_session(token)

    def hold_up(self, scope: Scope) -> Rejected | None:
        """One write more; why it may not be made yet."""
        return _too_many(self._writes.wait_ns(address_of(scope), self._now_ns()), "writes")

    async def login(self, scope: Scope, user: str, password: str) -> tuple[str, Identity] | Rejected:
        """A new session's token and whose it is; one that the request comes with ends."""
        self._take_times()
        users = self.access.users()
        if users is None:
            return Rejected(400, "there are no users with passwords here")
        if not self._may_be_read(scope):
            return Rejected(403, READABLE)
        held_up = _too_many(self._logins.wait_ns(address_of(scope), self._now_ns()), "logins")
        if held_up is not None:
            return held_up
        found = await self._by_password(scope, users, user, password)
        if isinstance(found, Rejected):
            return found
        barred = self._barred(scope, found, SESSION)
        if barred is not None:
            return barred
        self.logout(scope)
        await self.logout_elsewhere(scope)
        token = self.sessions.begin(found, _proof(users, found.user), self._now_ns())
        peer = peer_of(scope)
        log.info("HTTP %s: %s has logged in", peer, found.user, extra=about(peer, user=found.user))
        return token, found

    def logout(self, scope: Scope) -> None:
        """End the sessions that the request comes with."""
        for token in cookies.tokens(scope):
            self.sessions.end(token)

    async def logout_elsewhere(self, scope: Scope) -> bool:
        """End those that other cells keep; false where one of them doesn't answer."""
        elsewhere = self._elsewhere
        tokens = () if elsewhere is None else filter(elsewhere.is_elsewhere, cookies.tokens(scope))
        return all([await elsewhere.end(token) for token in tokens if elsewhere is not None])

    def find_login(self, token: str, uses: bool) -> Identity | None:
        """Return whose the token of a login of this cell is, for another cell."""
        self._take_times()
        if uses:
            caller = self._by_session(token)
            return None if caller is None else caller.identity
        found = self.sessions.peek(token, self._now_ns())
        return None if found is None else self._known(found.identity, found.proof)

    def _take_times(self) -> None:
        """Settings may have been read again."""
        security = self.access.security()
        self.sessions.idle_ns = security.session_idle_ms * MILLISECOND_NS
        self.sessions.lifetime_ns = security.session_lifetime_ms * MILLISECOND_NS

    # --- by what it is known

    async def _by_header(self, scope: Scope, how: str, what: bytes) -> Caller | Rejected:
        users, tokens = self.access.users(), self.access.authentication().tokens
        if not self._may_be_read(scope):
            return Rejected(403, READABLE)
        if how == "basic" and users is not None:
            pair = basic(what)
            if pair is None:
                return Rejected(400, "Authorization: Basic is followed by USER:PASSWORD in base64")
            found = await self._by_password(scope, users, *pair)
            if isinstance(found, Rejected):
                return found
            return Caller(found, PASSWORD, partial(self._known, found, _proof(users, found.user)))
        if how == "bearer" and tokens is not None:
            return await self._by_token(scope, tokens, what.decode("latin-1"))
        return self._unknown(scope, WHO)

    async def _by_password(self, scope: Scope, users: Users, user: str, password: str) -> Identity | Rejected:
        found = await self._passwords.check(users, user, password, address_of(scope))
        if isinstance(found, LoginDelay):
            return _delayed(found)
        if found is not None:
            return found
        # Names nobody has may be passwords that were typed into the wrong field.
        peer, whom = peer_of(scope), user if user in users else "somebody unknown"
        log.warning("HTTP %s: wrong password for %s", peer, whom, extra=about(peer, user=whom))
        return self._unknown(scope, WRONG)

    async def _by_token(self, scope: Scope, tokens: Tokens, token: str) -> Caller | Rejected:
        if len(token) > LONGEST_TOKEN:
            return self._unknown(scope, "this token is too long")
        try:
            check = partial(tokens.identify, token, "OAUTHBEARER")
            found = await self._threads.run(partial(self._throttle.run, address_of(scope), check))
        except TokenError as fault:
            peer = peer_of(scope)
            log.warning("HTTP %s: token refused: %s", peer, fault, extra=about(peer, reason=str(fault)))
            return self._unknown(scope, "this token is not valid here")
        if found is None or isinstance(found, LoginDelay):
            return _delayed(found or LoginDelay(1))
        identity, left_s = found
        until_ns = self._now_ns() + int(left_s * SECOND_NS)

        def again() -> Identity | None:
            believed = self.access.authentication().tokens
            is_believed = believed is not None and believed.rules == tokens.rules
            return identity if is_believed and self._now_ns() < until_ns else None

        return Caller(identity, TOKEN, again)

    def _by_session(self, token: str) -> Caller | None:
        found = self.sessions.find(token, self._now_ns())
        if found is None:
            return None
        identity = self._known(found.identity, found.proof)
        if identity is None:
            self.sessions.end(token)
            return None
        return Caller(identity, SESSION, partial(self._of_session, found))

    def _of_session(self, session: Session) -> Identity | None:
        lasts = self.sessions.lasts(session, self._now_ns())
        return self._known(session.identity, session.proof) if lasts else None

    def _by_certificate(self, scope: Scope) -> Identity | None:
        state = scope.get("state", {})
        external, until_s = state.get(EXTERNAL_USER), state.get(EXTERNAL_UNTIL_S, 0.0)
        authentication = self.access.authentication()
        if not external or "EXTERNAL" not in authentication.mechanisms or 0 < until_s <= time.time():
            return None
        return Identity(external, authentication.known().groups(external), "EXTERNAL")

    def _nobody(self, scope: Scope) -> Identity | None:
        return ANONYMOUS if self.access.lets_anonymous(own_address_of(scope), _is_tls(scope)) else None

    def _known(self, identity: Identity, proof: object) -> Identity | None:
        """A user with the groups of now, if it is there and has the same password as when that was asked."""
        user, users = identity.user, self.access.users()
        if users is None or user not in users or _proof(users, user) != proof:
            return None
        return Identity(user, users.groups(user), identity.mechanism)

    # --- whether it may be here at all

    def _connects(self, identity: Identity) -> bool:
        """HTTP is a way to the common virtual host: names are whole there, as for its connections."""
        return self._authority.is_open or self._authority.connects(identity, "").allowed

    def _barred(self, scope: Scope, identity: Identity, by: str) -> Rejected | None:
        """Why somebody who is known may not come in; who hasn't said so is asked who they are instead."""
        if self._connects(identity):
            return None
        reason = f"{refusal(identity, Action.CONNECT, '')}, the common one"
        if not by and self.access.authentication().is_configured:
            return self._unknown(scope, f"{reason}; {WHO}")
        return Rejected(403, reason)

    def _may_be_read(self, scope: Scope) -> bool:
        return self.access.may_be_read(own_address_of(scope), _is_tls(scope))

    def _unknown(self, scope: Scope, reason: str) -> Rejected:
        known = self.access.authentication()
        asked = challenge(is_from_a_page(scope), known.users is not None, known.tokens is not None)
        return Rejected(401, reason, (("WWW-Authenticate", asked),))


def _proof(users: Users, user: str) -> object:
    return tuple(users.verifier(user, each) for each in PROOF)


def _is_tls(scope: Scope) -> bool:
    return bool(scope.get("scheme") == "https")


def _delayed(delay: LoginDelay) -> Rejected:
    reason = f"too many attempts failed from this address: wait {delay.seconds} s"
    return Rejected(429, reason, (("Retry-After", str(delay.seconds)),))


def _too_many(wait_ns: int, what: str) -> Rejected | None:
    if wait_ns <= 0:
        return None
    seconds = str(-(-wait_ns // SECOND_NS))
    return Rejected(429, f"too many {what} from this address: wait {seconds} s", (("Retry-After", seconds),))


def is_from_a_page(scope: Scope) -> bool:
    """Whether a script of a page asks, which has a way of its own to ask its user."""
    headers = dict(scope["headers"])
    events = b"text/event-stream" in headers.get(b"accept", b"")
    return events or b"x-requested-with" in headers or headers.get(b"sec-fetch-dest") == b"empty"


def own_address_of(scope: Scope) -> str:
    """The address of ours that the client connected to."""
    server = scope.get("server")
    return str(server[0]) if server else ""


def address_of(scope: Scope) -> str:
    """Where a request comes from: who connected, whatever headers say."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def peer_of(scope: Scope) -> str:
    """The same with its port, as log lines name peers."""
    client = scope.get("client")
    return written(client[0], client[1]) if client else "?"
