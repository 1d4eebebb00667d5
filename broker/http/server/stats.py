"""What the HTTP port counts of itself, beside what it serves.

Counted on its loop's thread and read on any: whole numbers, which nobody else changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.http.metrics.exposition import family, labels


class HttpCounts:
    """Answers by status; ``held_up`` are requests that had to wait for their turn, ``turned_away`` clients
    for whom there was no place, and ``displaced`` those who made room for others.
    """

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self.held_up = 0
        self.turned_away = 0
        self.displaced = 0
        self.clients: Callable[[], int] = lambda: 0
        self.sessions: Callable[[], int] = lambda: 0
        self.spent_ns: Callable[[], int] = lambda: 0

    def exposed(self) -> bytes:
        """As `/metrics` shows it."""
        answers = [(labels(("status", str(status))), n) for status, n in sorted(dict(self.answers).items())]
        numbers = (
            ("held_up_total", "Requests that waited: too many a second", self.held_up),
            ("turned_away_total", "Clients there was no place for", self.turned_away),
            ("displaced_total", "Slow clients that made room", self.displaced),
            ("clients", "Clients of HTTP", self.clients()),
            ("sessions", "Logins that last", self.sessions()),
            ("processor_seconds_total", "Processor time the port took", self.spent_ns() / 1e9),
        )
        told = [family(f"sluice_http_{name}", text, [("", number)]) for name, text, number in numbers]
        return family("sluice_http_answers_total", "Answers over HTTP by status", answers) + b"".join(told)
