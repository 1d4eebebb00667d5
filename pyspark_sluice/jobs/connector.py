"""The broker as a job's command line names it, and Spark's readers and writers for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_sluice.options import End

DEFAULT_BROKER = "amqp://127.0.0.1:5672"


def add_broker(parser: argparse.ArgumentParser) -> None:
    """-b/--broker, and every option of the connector."""
    parser.add_argument(
        "-b",
        "--broker",
        metavar="URL",
        default=os.environ.get("SLUICE_BROKER", DEFAULT_BROKER),
        help=f"amqp[s]://host[:port], or several with commas (default: SLUICE_BROKER, else {DEFAULT_BROKER})",
    )
    add_options(parser)


def add_options(parser: argparse._ActionsContainer) -> None:
    """-o/--option: what the connector takes beside the broker and the address."""
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="an option of the connector (docs/spark.md), such as user=ana, passwordEnv=SLUICE_PASSWORD",
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def options_of(args: argparse.Namespace, **more: str) -> dict[str, str]:
    """What the connector is to be told."""
    return {"url": args.broker, **more, **dict(args.option)}


def of_end(options: Mapping[str, str], end: End) -> dict[str, str]:
    """Those that one end takes, for jobs that have both: what is the other's alone is left out, what is
    nobody's stays and is refused."""
    from pyspark_sluice.options import Options, option_name

    others = {option_name(each.name).lower() for each in fields(Options) if end not in each.metadata["ends"]}
    return {name: value for name, value in options.items() if name.lower() not in others}


def register(spark: SparkSession) -> None:
    """``format("amqp")`` in this session, installed or not."""
    from pyspark_sluice import AmqpDataSource

    spark.dataSource.register(AmqpDataSource)


def with_options(builder: Any, options: Mapping[str, str]) -> Any:
    """A reader's or a writer's builder with all of them."""
    return builder.format("amqp").options(**options)
