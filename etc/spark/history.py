"""What stopped producers, from a broker's history of flow: a table of stops by node and reason.

spark-submit etc/spark/history.py data/events.jsonl
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main(path: str) -> None:
    """Sum up `opened`, which says how long and by what a node was stopped (docs/observability.md)."""
    spark = SparkSession.builder.appName("sluice-history").getOrCreate()
    events = spark.read.json(path)
    (
        events.where(f.col("event") == "opened")
        .groupBy("node", "reason")
        .agg(
            f.count("*").alias("stops"),
            f.round(f.sum("stopped_ms") / 1000, 1).alias("stopped_s"),
            f.max("stop_msgs").alias("flow_stop_count"),
        )
        .orderBy(f.desc("stopped_s"))
        .show(100, truncate=False)
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
