"""Asking a real broker what an address is: who may see it, and answers that come late or never."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from broker.client.request import Management
from pyspark_sluice import incoming, management, rangereader
from pyspark_sluice.errors import OptionError, UnansweredError, UnseenError
from pyspark_sluice.offsets import StreamOffsets
from pyspark_sluice.options import Options, parse
from pyspark_sluice.rangereader import StreamRange, read_range
from pyspark_sluice.ranges import Range
from pyspark_sluice.source import find_with, schema_of
from tests.spark.conftest import StartBroker
from tests.spark.feeding import feed, names, source
from tests.wire.conftest import RunningBroker, wait_until
from tests.wire.secured import PASSWORD, Secured

POLICIES = "policies:\n  - {match: flights, kind: stream}\n"
# The reader may receive and no more: neither see a node nor have one made for replies.
RULES = """rules:
  - allow: connect
  - allow: all
    users: [root, anna]
  - allow: receive
    users: [reader]
"""
USERS = {"root": "", "anna": "", "reader": ""}


def given(secured: Secured, user: str, folder: Path, **more: str) -> dict[str, str]:
    """The options of a user who reads the stream."""
    (folder / "password").write_text(PASSWORD)
    login = {"user": user, "passwordFile": str(folder / "password"), "saslMechanisms": "SCRAM-SHA-256"}
    return {"url": secured.broker.url, "address": "flights", **login, **more}


def found_with(options: Options, asked: dict[str, str]) -> str:
    """The type of what the address is."""
    broker = StreamOffsets(options)
    try:
        return find_with(broker, options, asked).type
    finally:
        broker.close()


def test_a_stream_that_the_user_may_not_see_is_not_taken_for_a_queue(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    secured = Secured(start_broker, tmp_path, RULES, USERS, policies=POLICIES)
    feed(secured.url("root"), "flights", names(3))
    asked = given(secured, "reader", tmp_path)
    options = parse(asked, "source")
    with pytest.raises(OptionError, match="give sourceType, or the user the right manage-read"):
        schema_of(options, asked)
    with pytest.raises(OptionError, match="'reader' may not see 'flights'"):
        found_with(options, asked)
    # At its word nothing is asked; a stream's offsets have to be seen.
    assert "partition" not in schema_of(parse(asked | {"sourceType": "queue"}, "source"), asked).names
    said = given(secured, "reader", tmp_path, sourceType="stream")
    with pytest.raises(UnseenError, match="may not see 'flights'"):
        found_with(parse(said, "source"), said)
    allowed = given(secured, "anna", tmp_path)
    assert found_with(parse(allowed, "source"), allowed) == "stream"


def test_a_question_that_cannot_be_asked_for_now_is_asked_later(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """The user has as many nodes for replies as it may."""
    limits = "limits:\n  max_nodes_per_user: 1\n"
    secured = Secured(start_broker, tmp_path, RULES, USERS, limits, POLICIES)
    feed(secured.url("anna"), "flights", names(1))
    asked = given(secured, "anna", tmp_path)
    options = parse(asked, "source")
    broker, types = StreamOffsets(options), list[str]()
    thread = threading.Thread(target=lambda: types.append(find_with(broker, options, asked).type))
    try:
        with Management(secured.url("anna")):
            thread.start()
            wait_until(lambda: broker.lost_count > 0, 20, "the question to be refused")
            assert "resource-limit-exceeded" in broker.useless
        thread.join(30)
        assert types == ["stream"]
    finally:
        broker.close()
        thread.join(30)


def lose_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """Has so many questions ask for answers to where nobody receives; the names that were asked about."""
    asked: list[str] = []
    request_for = management.request_for

    def request(type_: str, name: str, reply_to: str, number: str) -> bytes:
        asked.append(name)
        return request_for(type_, name, reply_to if len(asked) > count else "nobody", number)

    monkeypatch.setattr(management, "request_for", request)
    return asked


def test_a_broker_that_never_answers_is_waited_for_no_longer_than_connect_timeout(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"url": broker.url, "address": "flights", "connectTimeout": "2s"}
    options = parse(asked, "source")
    questions = lose_answers(monkeypatch, 1000)
    began = time.monotonic()
    # As where no broker is there: the query says what is wrong when it starts.
    assert "partition" not in schema_of(options, asked).names
    with pytest.raises(UnansweredError, match="for 2 s; where sourceType says what the address is"):
        found_with(options, asked)
    assert time.monotonic() - began < 20
    # Each asked twice.
    assert questions == ["flights"] * 4


def test_an_answer_that_is_lost_is_asked_for_once_more(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(policies=POLICIES)
    feed(broker.url, "flights", names(1))
    asked = {"url": broker.url, "address": "flights", "connectTimeout": "4s"}
    questions = lose_answers(monkeypatch, 1)
    assert found_with(parse(asked, "source"), asked) == "stream"
    assert questions == ["flights"] * 3


def test_a_task_that_waits_for_offsets_and_is_told_nothing_fails(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker(policies=POLICIES)
    feed(broker.url, "flights", names(5))
    monkeypatch.setattr(rangereader, "SILENCE_S", 0.2)
    lose_answers(monkeypatch, 1000)
    options = source(broker.url, "flights", connectTimeout="2s")
    wanted, schema = StreamRange("flights", Range(0, 0, 9)), incoming.default_schema(stream=True)
    with pytest.raises(UnansweredError, match=r"has not answered at \$management for 2 s"):
        list(read_range(wanted, options, schema))
