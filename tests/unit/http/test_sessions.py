"""Sessions, cookies, paces and passwords of the HTTP port, without a socket."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from starlette.types import Scope

from broker.http.app import _pinned
from broker.http.server import cookies, head_checks
from broker.http.server.credentials import (
    MOST_REMEMBERED,
    REMEMBERED_NS,
    LoginDelay,
    Passwords,
    basic,
    challenge,
    scheme,
)
from broker.http.server.request_rate import BURST_S, MOST_ADDRESSES, RequestRate
from broker.http.server.sessions import MOST_OF_A_USER, Sessions
from broker.http.server.threads import Threads
from broker.security.identity import Identity
from broker.security.throttle import Attempts
from broker.security.users import Users

Answer = TypeVar("Answer")
SECOND = 1_000_000_000
BEGIN = 100 * SECOND
ALICE = Identity("alice", frozenset({"ops"}), "PLAIN")
# Long enough that no random bytes happen to spell it.
PASSWORD = "correct horse"


# --- sessions


def test_a_token_is_long_its_own_and_not_kept() -> None:
    sessions = Sessions(10 * SECOND, 100 * SECOND)
    tokens = {sessions.begin(ALICE, None, BEGIN + n) for n in range(10)}
    assert len(tokens) == 10
    assert all(len(token) >= 43 and token.isascii() for token in tokens)
    assert not any(token in repr(vars(sessions)) for token in tokens)


def test_a_session_ends_by_idleness_and_by_age() -> None:
    sessions = Sessions(10 * SECOND, 25 * SECOND)
    token = sessions.begin(ALICE, None, BEGIN)
    for at in (9, 18, 24):
        assert sessions.find(token, BEGIN + at * SECOND) is not None
    assert sessions.find(token, BEGIN + 25 * SECOND) is None
    idle = sessions.begin(ALICE, None, BEGIN)
    assert sessions.find(idle, BEGIN + 10 * SECOND) is None
    assert sessions.find(idle, BEGIN) is None
    assert len(sessions) == 0


def test_to_ask_whether_it_lasts_does_not_use_it() -> None:
    sessions = Sessions(10 * SECOND, 100 * SECOND)
    found = sessions.find(sessions.begin(ALICE, None, BEGIN), BEGIN)
    assert found is not None
    assert sessions.lasts(found, BEGIN + 9 * SECOND)
    assert not sessions.lasts(found, BEGIN + 10 * SECOND)


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "\0", "\udcff", "x" * 100_000])
def test_what_was_never_given_out_is_nothing(token: str) -> None:
    sessions = Sessions(10 * SECOND, 100 * SECOND)
    sessions.begin(ALICE, None, BEGIN)
    assert sessions.find(token, BEGIN) is None
    assert not sessions.end(token)


def test_there_are_so_many_of_a_user_and_in_all() -> None:
    sessions = Sessions(SECOND * 1000, SECOND * 1000, most=50)
    first = sessions.begin(ALICE, None, BEGIN)
    second = sessions.begin(ALICE, None, BEGIN)
    assert sessions.find(first, BEGIN) is not None
    for _ in range(MOST_OF_A_USER - 1):
        sessions.begin(ALICE, None, BEGIN)
    assert sessions.find(first, BEGIN) is not None, "it was used after the second"
    assert sessions.find(second, BEGIN) is None
    for number in range(100):
        sessions.begin(Identity(f"user{number}"), None, BEGIN)
    assert len(sessions) == 50


# --- cookies


def scope(*headers: tuple[bytes, bytes], tls: bool = False, **more: Any) -> Scope:
    common = {"type": "http", "server": ("127.0.0.1", 8672), "scheme": "https" if tls else "http"}
    return {**common, "headers": list(headers), **more}


def test_a_cookie_is_for_this_host_alone_and_for_no_script() -> None:
    plain = cookies.said(scope(), "abc")
    assert plain == "sluice-session-8672=abc; Path=/; HttpOnly; SameSite=Strict"
    for secure in (scope(tls=True), scope((b"origin", b"https://ops.example"))):
        said = cookies.said(secure, "abc")
        assert said == "__Host-sluice-session-8672=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert cookies.unsaid(scope()).startswith("sluice-session-8672=; Max-Age=0; ")


def test_over_tls_only_what_was_set_over_tls_counts() -> None:
    both = (b"cookie", b"sluice-session-8672=planted; __Host-sluice-session-8672=ours; other=x")
    assert cookies.tokens(scope(both, tls=True)) == ["ours"]
    assert cookies.tokens(scope(both)) == ["planted", "ours"]
    many = (b"cookie", b"; ".join([b"sluice-session-8672=x"] * 1000))
    assert len(cookies.tokens(scope(many))) <= 4
    assert cookies.tokens(scope((b"cookie", b"sluice-session-8672=" + b"x" * 300))) == []
    assert cookies.tokens(scope((b"cookie", b"sluice-session-8673=x; sluice-session-8672="))) == []


# --- pace


def test_a_pace_lets_a_burst_through_and_then_so_many_a_second() -> None:
    pace = RequestRate(2)
    assert [pace.wait_ns("a", BEGIN) for _ in range(2 * BURST_S)] == [0] * 2 * BURST_S
    assert pace.wait_ns("a", BEGIN) == SECOND // 2
    assert pace.wait_ns("b", BEGIN) == 0
    assert pace.wait_ns("a", BEGIN + SECOND // 2) == 0
    assert pace.wait_ns("a", BEGIN + SECOND // 2) > 0


def test_a_pace_of_none_is_none_and_what_it_remembers_is_bounded() -> None:
    assert all(RequestRate(0).wait_ns("a", BEGIN) == 0 for _ in range(1000))
    pace = RequestRate(1)
    for number in range(2 * MOST_ADDRESSES):
        pace.wait_ns(str(number), BEGIN)
    assert len(pace.addresses) == MOST_ADDRESSES


# --- heads


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"content-length", b"5")], 0),
        ([(b"transfer-encoding", b"chunked")], 0),
        ([(b"content-length", b"5"), (b"transfer-encoding", b"chunked")], 400),
        ([(b"x", b"y")] * 100, 0),
        ([(b"x", b"y")] * 101, 431),
        ([(b"x", b"y" * 20_000)], 431),
    ],
)
def test_a_head_has_bounds_and_one_length(headers: list[tuple[bytes, bytes]], status: int) -> None:
    found = head_checks.fault(scope(*headers, raw_path=b"/", query_string=b"", http_version="1.1"))
    assert (0 if found is None else found[0]) == status


def test_browsers_are_told_to_stay_with_tls_but_not_for_names_that_others_share() -> None:
    def told(host: bytes, tls: bool = True) -> list[tuple[bytes, bytes]]:
        return _pinned(scope((b"host", host), tls=tls))

    assert told(b"mq.example.org:8672") == [(b"Strict-Transport-Security", b"max-age=31536000")]
    assert told(b"mq.example.org", tls=False) == []
    for host in (b"localhost:8672", b"127.0.0.1", b"[::1]:8672", b"app.localhost"):
        assert told(host) == []


# --- passwords


@pytest.mark.parametrize(
    ("said", "pair"),
    [
        ("alice:pw", ("alice", "pw")),
        ("alice:", ("alice", "")),
        ("alice:a:b", ("alice", "a:b")),
        ("zoë:ü", ("zoë", "ü")),
        ("alice", None),
        (":pw", None),
        ("a\0b:pw", None),
    ],
)
def test_basic_is_a_user_and_a_password(said: str, pair: tuple[str, str] | None) -> None:
    assert basic(b64encode(said.encode())) == pair
    assert scheme(b"  BASIC  abc ") == ("basic", b"abc")
    assert basic(b"not base64!") is None
    assert basic(b64encode(b"\xff\xfe:x")) is None


def test_a_challenge_names_what_would_do() -> None:
    assert challenge(False, True, True) == 'Basic realm="sluice", charset="UTF-8", Bearer realm="sluice"'
    assert challenge(True, True, True) == 'Bearer realm="sluice"'
    assert challenge(True, True, False) == 'Session realm="sluice"'


class Counting(Users):
    """Knows one password and how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0

    def verify(self, user: str, password: str) -> Identity | None:
        self.checks += 1
        return ALICE if (user, password) == ("alice", PASSWORD) else None


class Clock:
    """A time that stands until it is told."""

    now_ns = BEGIN

    def __call__(self) -> int:
        return self.now_ns


def ask(question: Callable[[], Answer], /) -> Answer:
    return question()


def test_a_right_password_is_worked_out_once_a_minute_and_a_wrong_one_always() -> None:
    async def scenario() -> None:
        users, clock = Counting(), Clock()
        passwords = Passwords(Attempts(free=1000), ask, Threads(), clock)
        for _ in range(3):
            assert await passwords.check(users, "alice", PASSWORD, "::1") == ALICE
            assert await passwords.check(users, "alice", "wrong", "::1") is None
        assert users.checks == 1 + 3
        assert await passwords.check(users, "alicec", PASSWORD[1:], "::1") is None, "no two pairs are one"
        clock.now_ns += REMEMBERED_NS
        assert await passwords.check(users, "alice", PASSWORD, "::1") == ALICE
        assert users.checks == 6
        again = Counting()
        assert await passwords.check(again, "alice", PASSWORD, "::1") == ALICE
        assert again.checks == 1, "users were read again"
        assert PASSWORD not in repr(passwords._right)
        assert len(passwords._right) <= MOST_REMEMBERED

    asyncio.run(scenario())


def test_many_who_ask_the_same_at_once_cost_few_checks() -> None:
    async def scenario() -> None:
        users = Counting()
        passwords = Passwords(Attempts(), ask, Threads(), Clock())
        found = await asyncio.gather(*(passwords.check(users, "alice", PASSWORD, "::1") for _ in range(30)))
        assert found == [ALICE] * 30
        assert users.checks <= 2

    asyncio.run(scenario())


def test_who_guessed_too_often_waits_and_nothing_is_worked_out() -> None:
    async def scenario() -> None:
        users, clock = Counting(), Clock()
        passwords = Passwords(Attempts(free=3), ask, Threads(), clock)
        assert await passwords.check(users, "alice", PASSWORD, "::1") == ALICE
        found = [await passwords.check(users, "alice", str(n), "::1") for n in range(5)]
        assert found[:3] == [None] * 3
        assert isinstance(found[4], LoginDelay)
        assert users.checks == 4
        assert await passwords.check(users, "alice", PASSWORD, "::1") == ALICE, "it is remembered"
        assert isinstance(await passwords.check(users, "bob", PASSWORD, "::1"), LoginDelay)
        assert await passwords.check(users, "bob", PASSWORD, "10.0.0.1") is None

    asyncio.run(scenario())


def test_a_password_in_use_is_no_answer_to_a_guesser_elsewhere() -> None:
    async def scenario() -> None:
        users, clock = Counting(), Clock()
        passwords = Passwords(Attempts(free=3), ask, Threads(), clock)
        assert await passwords.check(users, "alice", PASSWORD, "10.0.0.1") == ALICE
        for guess in range(4):
            await passwords.check(users, "alice", str(guess), "10.0.0.2")
        assert isinstance(await passwords.check(users, "alice", PASSWORD, "10.0.0.2"), LoginDelay)
        assert await passwords.check(users, "alice", PASSWORD, "10.0.0.1") == ALICE
        # Of IPv6 64 bits are one client's.
        assert await passwords.check(users, "alice", PASSWORD, "2001:db8::1") == ALICE
        checks = users.checks
        assert await passwords.check(users, "alice", PASSWORD, "2001:db8::2") == ALICE
        assert users.checks == checks

    asyncio.run(scenario())
