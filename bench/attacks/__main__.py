"""``python -m bench.attacks``: what a well-behaved pair keeps of its broker during each attack, as a table.

Each attack has a broker of its own. ``--write`` puts the lines that were measured into the table of
docs/security.md; exit status 1 if somewhere less than 80 % is kept, or p99 reaches 50 ms. ``--port`` takes
the attacks on one port only.
"""

from __future__ import annotations

import argparse
import sys

from bench.attacks import told
from bench.attacks.attacker import EVERY
from bench.attacks.brokers import line_of
from bench.attacks.catalogue import ATTACKS
from bench.attacks.guarded import GUARDED_ATTACKS
from bench.attacks.web import WEB_ATTACKS

PORTS = {"amqp": ATTACKS, "secured": GUARDED_ATTACKS, "http": WEB_ATTACKS, "both": EVERY}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=__doc__)
    parser.add_argument("--port", choices=PORTS, default="both", help="attacks on this port (both)")
    parser.add_argument("--only", action="append", choices=EVERY, help="this attack (may be repeated)")
    parser.add_argument("--write", action="store_true", help="put the lines into docs/security.md")
    args = parser.parse_args()
    lines = []
    for name in args.only or PORTS[args.port]:
        lines.append(line_of(name))
        print(told.sentence(lines[-1]), file=sys.stderr)
    print(told.table(lines))
    if args.write:
        told.write(lines)
    return 0 if all(told.is_good(line) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
