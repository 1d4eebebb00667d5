"""Thresholds, windows and prefetch from a broker's history: ``spark-submit jobs/flow_capacity.py --help``."""

import sys

from pyspark_sluice.jobs.flow_capacity import main

sys.exit(main())
