"""``python -m bench.http_attacks``: ``python -m bench.attacks --port http``."""

from __future__ import annotations

import sys

from bench.attacks.__main__ import main

if __name__ == "__main__":
    sys.argv[1:1] = ["--port", "http"]
    sys.exit(main())
