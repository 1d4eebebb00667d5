"""What every job's program does alike: its command line, its session, its exit status."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED, USAGE, INTERRUPTED = 1, 2, 130

Work = Callable[["SparkSession", argparse.Namespace], int]


def run(
    name: str,
    doc: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    work: Work,
    argv: Sequence[str] | None = None,
) -> int:
    """Parses, works, and returns 0, 1 (refused, with the reason) or 2 (usage)."""
    parser = argparse.ArgumentParser(
        prog=f"spark-submit jobs/{name}.py",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(argv)
    # Spark asks for a version of pandas before it runs Arrow functions; the jobs make nothing of pandas'.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # Help and a wrong command line cost no Java.
    from pyspark.errors import PySparkException

    from pyspark_sluice.jobs.session import session

    try:
        with session(name.replace("_", "-")) as spark:
            return work(spark, args)
    except (SluiceError, PySparkException) as error:
        print(f"{name}: {reason(str(error))}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def reason(text: str) -> str:
    """What an error says, without the stacks of Java and Python below it."""
    lines = [line for line in text.splitlines() if line.strip()]
    kept = next(
        (n for n, line in enumerate(lines) if line.lstrip().startswith(("at ", "JVM stacktrace"))), len(lines)
    )
    return "\n".join(lines[: max(kept, 1)])
