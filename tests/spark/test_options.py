"""Options are refused early, precisely and all at once, and never show a password."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyspark_sluice.errors import LoginError, OptionError
from pyspark_sluice.options import Options, option_name, parse, table

HERE = {"url": "amqp://broker.example.org", "address": "orders"}


def test_what_is_not_said_has_its_default() -> None:
    options = parse(HERE, "sink")
    assert [str(broker) for broker in options.url] == ["amqp://broker.example.org:5672"]
    assert (options.max_in_flight, options.credit_timeout, options.on_reject) == (4000, 300.0, "fail")
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_come_in_any_case_as_spark_gives_them() -> None:
    options = parse(HERE | {"creditTIMEOUT": "5 m", "maxinflight": "10"}, "sink")
    assert (options.credit_timeout, options.max_in_flight) == (300.0, 10)


def test_a_list_of_brokers_is_tried_in_order() -> None:
    options = parse(HERE | {"url": "amqps://a, amqps://[::1]:7000"}, "sink")
    assert [str(broker) for broker in options.url] == ["amqps://a:5671", "amqps://[::1]:7000"]


WRONG = [
    ({}, "url is missing"),
    ({"adress": "x"}, "unknown option 'adress' (did you mean 'address'?)"),
    ({"creditTimeuot": "1"}, "did you mean 'creditTimeout'?"),
    ({"maxRowsPerTrigger": "1"}, "maxRowsPerTrigger is an option of the source only"),
    ({"path": "orders"}, "path is no option: see address"),
    ({"url": "http://x"}, "url must be amqp://host[:port]"),
    ({"url": "amqp://a,amqps://b"}, "lest a failover gives up TLS"),
    ({"heartbeat": "soon"}, "heartbeat must be a duration such as"),
    ({"maxInFlight": "0"}, "maxInFlight must be 1 to 100000"),
    ({"onReject": "drop"}, "onReject must be one of fail, skip, deadletter"),
    ({"onReject": "deadletter"}, "deadLetterAddress need each other"),
    ({"durable": "yes"}, "durable must be true or false"),
    ({"user": "alice"}, "user needs one of passwordEnv and passwordFile"),
    ({"passwordEnv": "X"}, "a password needs user"),
    ({"token": "x.y.z"}, "token is no option, since plans and logs show options: see tokenEnv, tokenFile"),
    ({"tokenEnv": "X", "tokenFile": "x"}, "tokenEnv and tokenFile exclude each other"),
    ({"user": "alice", "tokenEnv": "X", "passwordEnv": "X"}, "a token and a password exclude each other"),
    ({"tlsCa": "ca.pem"}, "TLS needs amqps://"),
    ({"saslMechanisms": "SCRAM"}, "saslMechanisms must be some of"),
    ({"address": " "}, "address must not be empty"),
]

# Of a source.
WRONG_READING = [
    (
        {"startingOffsets": "now"},
        "startingOffsets must be earliest or latest, or an offset for each partition",
    ),
    ({"startingOffsets": '{"0": "x"}'}, "(-2 for earliest, -1 for latest)"),
    ({"startingOffsets": '{"0": -3}'}, "startingOffsets must be"),
    ({"startingOffsets": "{}"}, "startingOffsets must be"),
    ({"endingOffsets": "earliest"}, "endingOffsets must be latest, or"),
    ({"endingOffsets": '{"0": -2}'}, "(-1 for latest)"),
    ({"startingTimestamp": "noon"}, "startingTimestamp must be milliseconds since 1970, or a time such as"),
    ({"startingTimestamp": "20261126"}, "must have ten digits or more as milliseconds since 1970; a date is"),
    ({"startingTimestamp": "5"}, "startingTimestamp must have ten digits or more"),
    ({"startingOffsets": "latest", "startingTimestamp": "0"}, "exclude each other"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is more than maxOffsetsPerTrigger"),
    ({"partitions": "0"}, "partitions must be 1 to 10000"),
    ({"sourceType": "topic"}, "sourceType must be one of queue, stream"),
    ({"maxOffsetPerTrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
]


@pytest.mark.parametrize(("given", "says"), WRONG_READING, ids=range(len(WRONG_READING)))
def test_what_is_wrong_with_a_source_is_named(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(HERE | given, "source")
    assert says in str(refused.value)


def test_offsets_and_times_of_a_stream() -> None:
    found = parse(HERE | {"startingOffsets": '{"1": 4, "0": -2}', "endingOffsets": "LATEST"}, "source")
    assert (found.starting_offsets, found.ending_offsets) == (((0, -2), (1, 4)), "latest")
    times = {
        "1764140400123": 1764140400123,
        "0": 0,
        "2026-11-26": 1795651200000,
        "2026-11-26T06:30:00Z": 1795674600000,
        "2026-11-26 07:30:00+01:00": 1795674600000,
        "2026-11-26T06:30": 1795674600000,
    }
    for text, expected in times.items():
        assert parse(HERE | {"startingTimestamp": text}, "source").starting_timestamp == expected


@pytest.mark.parametrize(("given", "says"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse((HERE if given else {}) | given, "sink")
    assert says in str(refused.value)


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(OptionError) as refused:
        parse({"adress": "x", "durable": "perhaps"}, "sink")
    assert str(refused.value).count("; ") == 2


@pytest.mark.parametrize(
    "given",
    [
        {"url": "amqp://alice:s3cret@host"},
        {"url": "amqp://alice:s3cret@[broken"},
        {"password": "s3cret"},
        {"token": "s3cret"},
        {"pasword": "s3cret"},
        {"user": "s3cret:s3cret"},
    ],
    ids=range(6),
)
def test_a_password_is_refused_and_not_shown(given: dict[str, str]) -> None:
    with pytest.raises(OptionError) as refused:
        parse(HERE | given, "sink")
    assert "s3cret" not in str(refused.value)


def test_a_password_is_read_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    options = parse(HERE | {"user": "alice", "passwordFile": str(file)}, "sink")
    with pytest.raises(LoginError, match="No such file"):
        options.password()
    file.write_text("wonder land\n")
    assert options.password() == "wonder land"
    monkeypatch.setenv("SOME_PASSWORD", "other")
    other = parse(HERE | {"user": "alice", "passwordEnv": "SOME_PASSWORD"}, "sink")
    assert other.password() == "other"
    assert b"other" not in pickle.dumps(other)
    assert "other" not in repr(other)


def test_a_token_is_read_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    options = parse(HERE | {"tokenFile": str(file)}, "sink")
    with pytest.raises(LoginError, match=r"tokenFile: .*No such file"):
        options.token()
    for text in ("x.y.z", "x.y.zz"):
        file.write_text(text + "\n")
        assert (options.token(), options.password()) == (text, None)
    monkeypatch.setenv("SOME_TOKEN", "u.v.w")
    assert parse(HERE | {"tokenEnv": "SOME_TOKEN", "user": "alice"}, "sink").token() == "u.v.w"


def test_the_table_has_every_option() -> None:
    text = table()
    for name in Options.__slots__:
        assert f"| `{option_name(name)}` |" in text
