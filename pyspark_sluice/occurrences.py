"""How often a row has come before within its task: the last part of a message's id.

A task may have a hundred million rows, so of each only eight bytes are kept, sorted, in runs that are merged
as they grow. Two different rows that share these eight bytes are taken for one: then the ids of both still
differ, but depend on which came first, and a retry may send one of them twice. In 10 million rows there is
such a pair with a chance of 3 in a million.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]


class Occurrences:
    """Counts of a task's rows so far."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []
        # Only of rows that came more than once.
        self._counts: dict[int, int] = {}

    def count(self, digests: Sequence[bytes]) -> list[int] | None:
        """For each row how many like it came before; None if that is 0 for all of them. ``digests`` have the
        same length, at least eight bytes."""
        joined = b"".join(digests)
        size = len(digests[0])
        keys = np.frombuffer(joined, np.uint8).reshape(len(digests), size)[:, :8].copy().view("<u8").ravel()
        ordered = np.sort(keys)
        again = self._known(ordered)
        again[1:] |= ordered[1:] == ordered[:-1]
        if not again.any():
            self._add(ordered)
            return None
        repeated = {int(key) for key in ordered[again]}
        new = np.unique(ordered[~self._known(ordered)])
        before = self._known(np.array(sorted(repeated), "<u8"))
        for key, known in zip(sorted(repeated), before, strict=True):
            self._counts.setdefault(key, 1 if known else 0)
        self._add(new)
        counted = []
        for key in keys.tolist():
            if key in repeated:
                counted.append(self._counts[key])
                self._counts[key] += 1
            else:
                counted.append(0)
        return counted

    def _known(self, ordered: Keys) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(ordered), np.bool_)
        for run in self._runs:
            at = np.searchsorted(run, ordered)
            at[at == len(run)] = 0
            found |= run[at] == ordered
        return found

    def _add(self, ordered: Keys) -> None:
        if not len(ordered):
            return
        self._runs.append(ordered)
        while len(self._runs) > 1 and len(self._runs[-2]) < 4 * len(self._runs[-1]):
            last, other = self._runs.pop(), self._runs.pop()
            # A stable sort of two sorted halves only merges them.
            self._runs.append(np.sort(np.concatenate((other, last)), kind="stable"))
