"""Files into a queue: ``spark-submit jobs/ingest.py --help``."""

import sys

from pyspark_sluice.jobs.ingest import main

sys.exit(main())
