"""Thresholds, windows and prefetch from a broker's history: ``spark-submit jobs/flow_capacity.py --help``."""

import sys

from broker.jobs.flow_capacity import main

sys.exit(main())
