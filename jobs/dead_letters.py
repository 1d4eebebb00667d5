"""Dead letters reported and brought back: ``spark-submit jobs/dead_letters.py --help``."""

import sys

from broker.jobs.dead_letters import main

sys.exit(main())
