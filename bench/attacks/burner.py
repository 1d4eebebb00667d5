"""``python -m bench.attacks.burner``: takes a share of a processor, for nothing; lines on stdin say which."""

from __future__ import annotations

import select
import sys
import time

from bench.attacks.companion import end_with_parent

# What it takes at once: an attacker, too, sleeps and wakes many times in a millisecond's work.
PIECE_S = 0.0002
# A pause beyond this is one in which it was held: nothing of that is made up for.
HELD_S = 0.05


def burn() -> None:
    """Until nobody is there to say how much."""
    share, last_s, owed_s = 0.0, time.monotonic(), 0.0
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            share, owed_s = float(line), 0.0
        now_s = time.monotonic()
        passed_s, last_s = now_s - last_s, now_s
        owed_s += share * passed_s if passed_s < HELD_S else 0.0
        began_s = time.process_time()
        if owed_s <= 0:
            time.sleep(PIECE_S)
        else:
            while time.process_time() - began_s < min(owed_s, PIECE_S):
                pass
        owed_s -= time.process_time() - began_s


if __name__ == "__main__":
    end_with_parent()
    burn()
