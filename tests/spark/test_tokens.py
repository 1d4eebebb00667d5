"""Logging in with an OAuth token at a real broker, and connections whose token expires."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from pyspark_sluice.errors import LoginError
from pyspark_sluice.options import parse
from pyspark_sluice.receiver import Receiver
from pyspark_sluice.sender import Counts, Sender
from tests.spark.conftest import StartBroker
from tests.spark.feeding import id_of, message, names
from tests.wire.conftest import RunningBroker, wait_until

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
# So long after its end a token is still taken.
LEEWAY_S = 30


def token(left_s: float) -> str:
    """One of alice's that holds for so long."""
    claims = {"iss": "me", "aud": "sluice", "sub": "alice", "exp": int(time.time() + left_s) - LEEWAY_S}
    return jwt.encode(claims, KEY, "RS256")


@pytest.fixture
def trusting(start_broker: StartBroker, tmp_path: Path) -> RunningBroker:
    """A broker that takes these tokens and nothing else."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public]}))
    return start_broker(
        f"security: {{plain_without_tls: true, oauth_issuer: me, oauth_audience: [sluice],"
        f" oauth_jwks: {tmp_path / 'jwks.json'}}}\n"
    )


@pytest.fixture
def options(trusting: RunningBroker, tmp_path: Path) -> dict[str, str]:
    return {"url": trusting.url, "address": "orders", "tokenFile": str(tmp_path / "token")}


def sent(count: int, options: dict[str, str]) -> Counts:
    sender = Sender(parse(options, "sink"), "test")
    try:
        sender.start()
        sender.put(message(name) for name in names(count))
        return sender.finish()
    finally:
        sender.close()


@pytest.mark.parametrize("more", [{}, {"user": "alice"}, {"saslMechanisms": "OAUTHBEARER"}], ids=range(3))
def test_a_token_says_who_it_is(
    trusting: RunningBroker, options: dict[str, str], tmp_path: Path, more: dict[str, str]
) -> None:
    (tmp_path / "token").write_text(token(600) + "\n")
    assert sent(10, options | more).accepted == 10
    trusting.wait_for_log("user alice by OAUTHBEARER")


def test_a_token_that_is_not_taken_is_final_and_not_shown(
    trusting: RunningBroker, options: dict[str, str], tmp_path: Path
) -> None:
    for text, more in ((token(-60), {}), (token(600), {"user": "bob"})):
        (tmp_path / "token").write_text(text)
        with pytest.raises(LoginError, match="the token is not taken, or it is another user's") as refused:
            sent(1, options | more)
        assert text not in str(refused.value) + trusting.log


def test_a_task_whose_token_ends_goes_on_with_the_next_one(
    trusting: RunningBroker, options: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token(5))
    sender = Sender(parse(options, "sink"), "test")
    sender.start()
    try:
        sender.put(message(name) for name in names(10))
        wait_until(lambda: sender.counts.accepted == 10, 20, "the first rows")
        (tmp_path / "token").write_text(token(600))
        wait_until(lambda: sender.lost_count == 1, 30, "the broker to end it")
        sender.put(message(name) for name in names(10, 10))
        counts = sender.finish()
    finally:
        sender.close()
    assert (counts.accepted, counts.reconnected) == (20, 1)
    trusting.wait_for_log("the token has expired")


def test_a_query_whose_token_ends_without_another_fails(
    trusting: RunningBroker, options: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token(600))
    sent(5, options)
    (tmp_path / "token").write_text(token(3))
    receiver = Receiver(parse(options, "source"))
    receiver.start()
    try:
        taken = receiver.take(5, None, wait_s=0.0, patience_s=20.0) or []
        assert [id_of(each) for each in taken] == names(5)
        wait_until(lambda: receiver.failure is not None, 30, "the token to be of no more use")
        assert isinstance(receiver.failure, LoginError)
    finally:
        receiver.close()
