"""Dead letters reported and brought back: ``spark-submit jobs/dead_letters.py --help``."""

import sys

from pyspark_sluice.jobs.dead_letters import main

sys.exit(main())
