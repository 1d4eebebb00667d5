"""With SLUICE_PURE=1 what is compiled against the pure rooms can't be imported beside their plain Python."""

from __future__ import annotations

import os

collect_ignore = ["test_sasl.py"] if os.environ.get("SLUICE_PURE") else []
