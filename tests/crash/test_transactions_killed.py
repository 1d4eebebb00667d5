"""kill -9 during open, committing and rolling-back transactions: all of each, or nothing.

Movers take messages from ``in`` and send each to ``out`` within a transaction. Whatever instant the broker is
killed at, each message is in exactly one of the two queues afterwards, once; and what a mover heard was
committed is in ``out``, what it heard was rolled back and did not move later is in ``in``.
"""

from __future__ import annotations

import random

import pytest
from proton.reactor import Container

from tests.crash.conftest import Broker
from tests.crash.movers import SOURCE, TARGET, Mover, Putter, run_for, take_all

MESSAGES = 4000


def url_of(broker: Broker) -> str:
    return f"127.0.0.1:{broker.port}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lives", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_each_message_is_in_one_of_both_queues(crashing: Broker, lives: int) -> None:
    dice = random.Random(20191)
    ids = {f"m{n}" for n in range(MESSAGES)}
    confirmed: set[str] = set()
    commits = lost_words = 0
    crashing.start()
    Container(Putter(url_of(crashing), sorted(ids))).run()
    life = 0
    # On a busy machine a kill may come before anything has begun: it goes on until enough did not.
    while life < lives or life % 4 or (min(lost_words * 2, commits) <= lives and life < 5 * lives):
        movers = [Mover(url_of(crashing), seed=100 * life + n) for n in range(3)]
        run_for([Container(mover) for mover in movers], dice.uniform(0.05, 0.4) * (1 + life // lives))
        crashing.kill()
        for mover in movers:
            assert mover.failures == []
            confirmed |= mover.confirmed
            commits += mover.commits
            lost_words += bool(mover.batch)
        crashing.start()
        life += 1
        if life % 4 == 0:
            there, moved = take_all(url_of(crashing), SOURCE), take_all(url_of(crashing), TARGET)
            assert len(there) == len(set(there)), "nothing is in the first queue twice"
            assert len(moved) == len(set(moved)), "nothing was moved twice"
            assert set(there) & set(moved) == set(), "nothing is in both"
            assert set(there) | set(moved) == ids, "nothing is in neither"
            assert confirmed <= set(moved), "what was confirmed counts"
            confirmed.clear()
            Container(Putter(url_of(crashing), sorted(ids))).run()
    assert commits > lives
    assert lost_words > lives // 2, "some were killed while a transaction was open"
    print(f"\n{lives} lives, {commits} commits heard of, {lost_words} batches under way at a kill")
