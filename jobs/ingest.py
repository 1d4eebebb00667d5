"""Files into a queue: ``spark-submit jobs/ingest.py --help``."""

import sys

from broker.jobs.ingest import main

sys.exit(main())
