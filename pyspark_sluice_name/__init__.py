"""``format("sluice")`` for a Spark that looks for data sources itself: it takes one from each module."""

from __future__ import annotations

from pyspark_sluice import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
