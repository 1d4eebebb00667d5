"""A queue summed up by windows of time: ``spark-submit jobs/aggregate.py --help``."""

import sys

from pyspark_sluice.jobs.aggregate import main

sys.exit(main())
