"""What a job makes of its command line before Spark is there: kinds of files, and options for two ends."""

from __future__ import annotations

import pytest

from broker.errors import OperatorError
from pyspark_sluice.jobs import connector, files, redrive
from pyspark_sluice.options import Options

pytestmark = pytest.mark.flow

HERE = {"url": "amqp://127.0.0.1:1"}
BOTH = {"creditTimeout": "30s", "LINKS": "1", "onMalformed": "null", "heartbeat": "5s"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.jsonl.gz", "json"),
        ("a.json.gz", "json"),
        ("in/a.jsonl.bz2", "json"),
        ("a.json.zst", "json"),
        ("a.parquet/", "parquet"),
        ("a.parquet.gz", "parquet"),
    ],
)
def test_a_files_kind_stands_before_how_it_is_packed(path: str, kind: str) -> None:
    assert files._kind(path) == kind


@pytest.mark.parametrize("path", ["a", "a.gz", "a.csv.gz.txt"])
def test_a_kind_that_nothing_tells_is_asked_for(path: str) -> None:
    with pytest.raises(OperatorError, match="Say --format"):
        files._kind(path)


def test_each_end_has_its_own_options_and_those_of_both() -> None:
    given = HERE | BOTH | {"colour": "red"}
    assert connector.of_end(given, "source") == HERE | {
        "LINKS": "1",
        "onMalformed": "null",
        "heartbeat": "5s",
        "colour": "red",
    }
    assert connector.of_end(given, "sink") == HERE | {
        "creditTimeout": "30s",
        "heartbeat": "5s",
        "colour": "red",
    }


class End:
    """A receiver of two letters, and a sender that accepts what it is given."""

    made: list[Options] = []  # noqa: RUF012  one test's

    def __init__(self, options: Options, name: str = "") -> None:
        self.made.append(options)
        self.accepted = 0

    def start(self) -> None: ...

    def close(self) -> None: ...

    def take(self, rows: int, size: int | None, **more: object) -> list[bytes]:
        return [b"a", b"b"]

    def put(self, letters: object) -> None:
        self.accepted = 2

    def finish(self) -> End:
        return self

    def settle(self, count: int) -> None: ...


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of each that was made."""
    made: list[Options] = []
    monkeypatch.setattr(End, "made", made)
    monkeypatch.setattr(redrive, "Receiver", End)
    monkeypatch.setattr(redrive, "Sender", End)
    return made


def test_letters_go_back_with_options_of_both_ends(ends: list[Options]) -> None:
    redrive.check(HERE | BOTH)
    assert redrive._moved("dead", "orders", ["1", "2"], HERE | BOTH) == 2
    source, sink = ends
    assert (source.address, source.links, source.heartbeat) == ("dead", 1, 5.0)
    assert (sink.address, sink.credit_timeout, sink.on_reject, sink.heartbeat) == (
        "orders",
        30.0,
        "fail",
        5.0,
    )


@pytest.mark.parametrize("wrong", [{"colour": "red"}, {"creditTimeout": "soon"}, {"links": "many"}])
def test_what_neither_end_can_have_is_an_error_before_a_letter_is_taken(
    ends: list[Options], wrong: dict[str, str]
) -> None:
    with pytest.raises(OperatorError, match=next(iter(wrong))):
        redrive.check(HERE | wrong)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        redrive._moved("dead", "orders", ["1"], HERE | wrong)
    assert ends == []
