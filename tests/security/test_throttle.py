"""Who guesses wrong has to wait: how long, who else does not, and that what is remembered is bounded."""

from __future__ import annotations

import pytest

from broker.security import throttle
from broker.security.throttle import FORGOTTEN_NS, SITE_LEAK_MS, SITE_TIMES, Attempts, key_of

S = 1_000_000_000


def test_the_first_are_free_then_it_doubles_up_to_the_longest() -> None:
    attempts = Attempts(free=3, longest_ms=10_000)
    pauses = []
    for _ in range(8):
        attempts.failed("10.0.0.1:5000", 0)
        pauses.append(attempts.blocked("10.0.0.1:6000", 0))
    assert pauses == [0, 0, 1000, 2000, 4000, 8000, 10_000, 10_000]
    assert attempts.blocked("10.0.0.2:5000", 0) == 0


def test_a_pause_ends_and_the_next_failure_waits_longer() -> None:
    attempts = Attempts(free=1, longest_ms=60_000)
    attempts.failed("h", 0)
    assert [attempts.blocked("h", at) for at in (0, S - 1, S)] == [1000, 1, 0]
    attempts.failed("h", S)
    assert attempts.blocked("h", S) == 2000


def test_a_success_forgives_half() -> None:
    attempts = Attempts(free=4, longest_ms=60_000)
    for _ in range(3):
        attempts.failed("h", 0)
    attempts.succeeded("h")
    attempts.failed("h", 0)
    assert attempts.blocked("h", 0) == 0
    for _ in range(2):
        attempts.failed("h", 0)
    assert attempts.blocked("h", 0) == 1000
    # An account of one's own doesn't wipe the slate: guessing between successes is stopped as well.
    for _ in range(50):
        attempts.failed("h", 0)
        attempts.failed("h", 0)
        attempts.failed("h", 0)
        attempts.succeeded("h")
    assert attempts.blocked("h", 0) > 0
    for _ in range(10):
        attempts.succeeded("other")
    assert len(attempts) == 1


def test_after_a_quarter_of_an_hour_all_is_forgotten() -> None:
    attempts = Attempts(free=2)
    attempts.failed("h", 0)
    attempts.failed("h", FORGOTTEN_NS + 1)
    assert attempts.blocked("h", FORGOTTEN_NS + 1) == 0
    attempts.failed("other", 3 * FORGOTTEN_NS)
    assert len(attempts) == 1


def test_a_longest_pause_of_0_never_blocks() -> None:
    attempts = Attempts(free=1, longest_ms=0)
    for _ in range(100):
        attempts.failed("h", 0)
    assert attempts.blocked("h", 0) == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_ADDRESSES", 10)
    attempts = Attempts()
    for number in range(100):
        attempts.failed(f"10.0.0.{number}", number)
    assert len(attempts) == 10


def guess(attempts: Attempts, site: str, networks: int, now_ns: int) -> int:
    """How many guesses a site has that comes from so many of its networks, each for as long as it may."""
    made = 0
    for number in range(networks):
        while made < 10_000 and not attempts.blocked(f"[{site}:{number:x}::1]:1", now_ns):
            attempts.failed(f"[{site}:{number:x}::1]:1", now_ns)
            made += 1
    return made


def test_a_site_of_ipv6_has_no_free_attempts_without_end() -> None:
    attempts = Attempts(free=5)
    most = 5 * SITE_TIMES
    assert guess(attempts, "2001:db8:7", 4000, 0) == most + 1
    assert guess(attempts, "2001:db8:7", 4000, 60 * S) <= 60_000 // SITE_LEAK_MS + 1
    assert attempts.blocked("[2001:db8:8::1]:1", 60 * S) == 0, "the site beside it"
    assert attempts.blocked("10.0.0.1:1", 60 * S) == 0


def test_one_who_guesses_for_ever_does_not_block_its_site() -> None:
    attempts = Attempts(free=5)
    for minute in range(600):
        attempts.failed("[2001:db8:7:1::1]:1", minute * 60 * S)
    assert attempts.blocked("[2001:db8:7:2::1]:1", 600 * 60 * S) == 0


def test_what_is_remembered_of_sites_is_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_ADDRESSES", 10)
    attempts = Attempts()
    for number in range(100):
        attempts.failed(f"[2001:db8:{number:x}::1]:1", number)
    assert len(attempts._sites) == 10
    attempts.failed("10.0.0.1", 3600 * S)
    assert not attempts._sites


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:5672", "10.0.0.1"),
        ("[2001:db8:0:1::1]:5672", "2001:db8:0:1::"),
        ("2001:db8:0:1:2:3:4:5:5672", "2001:db8:0:1::"),
        ("2001:db8:0:1::1:50123", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("somewhere", "somewhere"),
    ],
)
def test_what_is_one_address(address: str, key: str) -> None:
    assert key_of(address) == key
