"""Options that mean nothing where they are given: refused, or named in a warning."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructType

from pyspark_sluice.errors import OptionError
from pyspark_sluice.options import parse
from pyspark_sluice.source import SourceReader, TableReader

SCHEMA = StructType().add("message_id", StringType())


def given(**more: str) -> dict[str, str]:
    return {"url": "amqp://broker.example.org", "address": "flights", **more}


def test_a_table_of_a_subscription_is_refused() -> None:
    asked = given(subscription="nightly")
    with pytest.raises(OptionError, match="subscription is of a query"):
        TableReader(parse(asked, "source"), asked, SCHEMA)
    SourceReader(parse(asked, "source"), asked, SCHEMA)


def test_limits_of_micro_batches_do_nothing_for_a_table_and_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = given(links="2", maxoffsetspertrigger="5", selector="x = 1")
    TableReader(parse(asked, "source"), asked, SCHEMA)
    [record] = caplog.records
    assert record.getMessage().startswith("links, maxOffsetsPerTrigger: of a query")


def test_a_delay_of_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    asked = given(maxTriggerDelay="1 m", minOffsetsPerTrigger="10")
    SourceReader(parse(asked, "source"), asked, SCHEMA)
    assert caplog.records == []
    asked = given(maxTriggerDelay="1 m")
    SourceReader(parse(asked, "source"), asked, SCHEMA)
    assert "maxTriggerDelay does nothing without minOffsetsPerTrigger" in caplog.text
