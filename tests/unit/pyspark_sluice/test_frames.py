"""The functions for PySpark 3.5: what they refuse before anything is sent, and the ids they ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pyspark_sluice import foreach_batch, write_batch
from pyspark_sluice.errors import EncodeError, OptionError
from pyspark_sluice.sending import QUERY

HERE = {"url": "amqp://broker.example.org", "address": "orders"}
BODY = StructType().add("body", "string")


class FakeRow:
    def asDict(self) -> dict[str, Any]:
        names = ("accepted", "skipped", "dead_lettered", "resent", "reconnected")
        return dict.fromkeys(names, 1) | {"blocked_s": 0.5}


class FakeFrame:
    """A frame of two tasks; ``prefixes`` are those of the ids it was sent under."""

    def __init__(self, schema: StructType = BODY, query: str | None = None) -> None:
        self.schema = schema
        self.prefixes: list[str] = []
        self._query = query

    @property
    def sparkSession(self) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty={QUERY: self._query}.get))

    def mapInArrow(self, task: Any, schema: str) -> FakeFrame:
        assert schema.startswith("accepted BIGINT, ")
        assert schema.endswith(" blocked_s DOUBLE")
        self.prefixes.append(task.keywords["prefix"])
        return self

    def collect(self) -> list[FakeRow]:
        return [FakeRow(), FakeRow()]


def frame(schema: StructType = BODY, query: str | None = None) -> tuple[FakeFrame, DataFrame]:
    fake = FakeFrame(schema, query)
    return fake, cast("DataFrame", fake)


def test_ids_begin_with_query_and_batch() -> None:
    fake, given = frame(query="q-1")
    foreach_batch(**HERE)(given, 7)
    foreach_batch(**HERE, queryId="mine")(given, 8)
    assert fake.prefixes == ["q-1-7", "mine-8"]


def test_without_a_query_s_id_nothing_is_sent() -> None:
    fake, given = frame()
    with pytest.raises(OptionError, match="queryId has to"):
        foreach_batch(**HERE)(given, 7)
    assert fake.prefixes == []


def test_the_tasks_counts_are_added_up() -> None:
    fake, given = frame()
    counts = write_batch(given, **HERE, queryId="load", durable=False)
    assert (counts.accepted, counts.blocked_s, fake.prefixes) == (2, 1.0, ["load-0"])


@pytest.mark.parametrize("write", [write_batch, lambda _, **options: foreach_batch(**options)])
def test_options_are_refused_at_once(write: Any) -> None:
    with pytest.raises(OptionError, match=r"did you mean 'address'\?"):
        write(frame()[1], **HERE, adress="x")


def test_a_column_that_has_no_place_is_refused_before_anything_is_sent() -> None:
    fake, given = frame(StructType().add("body", "string").add("colour", "string"))
    with pytest.raises(EncodeError, match="unknown column colour"):
        write_batch(given, **HERE)
    assert fake.prefixes == []
