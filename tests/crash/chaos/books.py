"""The books: what each place must hold after a life, by what its clients were told in that life.

A place is a queue or a subscription; ``letters`` holds the dead letters of ``bad``, so both are looked at
together. After each life the directory is read; what was in doubt is decided then, for good: what was
there has to stay until somebody settles it, and what was gone never comes back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

Id = tuple[int, int]

BAD, LETTERS = "bad", "letters"


class Breach(AssertionError):  # noqa: N818 - the broker's, not ours
    """A message that isn't where the books say, with its history."""


@dataclass(slots=True)
class Life:
    """What happened to the messages of one place in one life."""

    sent: set[Id] = field(default_factory=set)
    accepted: set[Id] = field(default_factory=set)
    ended: set[Id] = field(default_factory=set)
    confirmed: set[Id] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Kept:
    """A message as the directory has it."""

    id: Id
    seq: int
    redelivered: bool
    sound: bool


class Books:
    """What is in each place, and what happened to every message since the beginning."""

    def __init__(self) -> None:
        self.life = 0
        self.held: dict[str, set[Id]] = defaultdict(set)
        self.lives: dict[str, Life] = defaultdict(Life)
        # Delivered to somebody, ever; and told to be back since by its redelivered flag.
        self.delivered: dict[str, set[Id]] = defaultdict(set)
        self.history: dict[Id, list[str]] = defaultdict(list)
        self.newest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self.deliveries = self.redeliveries = self.confirmations = self.acceptances = 0

    def begin(self) -> None:
        """Another life."""
        self.life += 1
        self.lives.clear()

    def note(self, id_: Id, what: str) -> None:
        """Something happened to a message."""
        self.history[id_].append(f"life {self.life}: {what}")

    def note_sent(self, places: Iterable[str], id_: Id) -> None:
        """It is on its way to the broker, or may be; a second time only where the broker knows duplicates."""
        for place in places:
            if not self._was_there(place, id_):
                self.lives[place].sent.add(id_)
        self.note(id_, "sent")

    def note_accepted(self, places: Iterable[str], id_: Id) -> None:
        """Its producer was told that it was accepted."""
        self.acceptances += 1
        for place in places:
            if id_ in self.lives[place].sent:
                self.lives[place].accepted.add(id_)
        self.note(id_, "accepted")

    def note_delivered(self, place: str, id_: Id, flagged: bool, sound: bool) -> None:
        """A consumer has it: is it one that may come, whole, and flagged if it came before?"""
        self.deliveries += 1
        self.redeliveries += flagged
        self.note(id_, f"delivered from {place}{', flagged' if flagged else ''}")
        life = self.lives[place]
        if not sound:
            self.breach(f"{place}: the body isn't what was sent", [id_])
        if id_ in life.confirmed:
            self.breach(f"{place}: its settlement was confirmed", [id_])
        if place != LETTERS and id_ not in self.held[place] and id_ not in life.sent:
            self.breach(f"{place}: it was gone", [id_])
        if id_ in self.delivered[place] and not flagged:
            self.breach(f"{place}: delivered again, but not flagged", [id_])
        producer, number = id_
        if id_ not in self.delivered[place] and not flagged and place != LETTERS:
            if number < self.newest[place, producer]:
                self.breach(f"{place}: after {self.newest[place, producer]} of its producer", [id_])
            self.newest[place, producer] = number
        self.delivered[place].add(id_)

    def _was_there(self, place: str, id_: Id) -> bool:
        return id_ in self.held[place] or id_ in self.delivered[place]

    def note_ended(self, place: str, id_: Id, how: str) -> None:
        """Its consumer has said how it ends, and knows no more."""
        self.lives[place].ended.add(id_)
        self.note(id_, f"{how} in {place}")

    def note_confirmed(self, place: str, id_: Id) -> None:
        """The broker has confirmed to the consumer that it is settled."""
        self.confirmations += 1
        self.lives[place].confirmed.add(id_)
        self.note(id_, f"confirmed in {place}")

    def compare(self, found: dict[str, list[Kept]]) -> None:
        """After a life: Breach where the directory holds less, or more, than it may."""
        for place in sorted({*self.held, *self.lives, *found} - {BAD, LETTERS}):
            self._compare(place, found.get(place, []))
        self._compare_letters(found)
        for place, messages in found.items():
            self._look_at(place, messages)
            self.held[place] = {each.id for each in messages}
        for place in set(self.held) - set(found):
            self.held[place] = set()

    def _compare(self, place: str, messages: list[Kept]) -> None:
        life = self.lives[place]
        there = {each.id for each in messages}
        before = self.held[place]
        self._none(f"{place}: lost", ((before | life.accepted) - life.ended) - there)
        self._none(f"{place}: back although its settlement was confirmed", there & life.confirmed)
        self._none(f"{place}: back although it was gone", there - before - life.sent)

    def _compare_letters(self, found: dict[str, list[Kept]]) -> None:
        """A message of ``bad`` is there or with the dead letters, but not in both."""
        bad = {each.id for each in found.get(BAD, [])}
        letters = {each.id for each in found.get(LETTERS, [])}
        first, second = self.lives[BAD], self.lives[LETTERS]
        before = self.held[BAD] | self.held[LETTERS]
        self._none("a dead letter: in both its places", bad & letters)
        self._none(
            "a dead letter: lost", ((before | first.accepted) - first.ended - second.ended) - bad - letters
        )
        settled = first.confirmed | second.confirmed
        self._none("a dead letter: back although its settlement was confirmed", (bad | letters) & settled)
        self._none("a dead letter: back although it was gone", (bad | letters) - before - first.sent)
        self._none("a dead letter: back from the dead", bad & self.held[LETTERS])

    def _look_at(self, place: str, messages: list[Kept]) -> None:
        self._none(f"{place}: its body isn't what was sent", {each.id for each in messages if not each.sound})
        ids = [each.id for each in messages]
        self._none(f"{place}: there twice", {id_ for id_, count in Counter(ids).items() if count > 1})
        if place == LETTERS:
            return
        newest: dict[int, int] = {}
        for each in messages:
            producer, number = each.id
            if newest.get(producer, -1) > number:
                self.breach(f"{place}: it stands behind {newest[producer]} of its producer", [each.id])
            newest[producer] = number

    def _none(self, what: str, ids: set[Id]) -> None:
        if ids:
            self.breach(what, sorted(ids))

    def breach(self, what: str, ids: list[Id]) -> None:
        """Say what is wrong with messages, and what happened to the first of them."""
        told = [f"{what}: {len(ids)} messages, the first {ids[:5]}"]
        for id_ in ids[:2]:
            told += [f"  {id_}:", *(f"    {each}" for each in self.history[id_][-40:])]
        raise Breach("\n".join(told))

    def __str__(self) -> str:
        return (
            f"{self.acceptances:,} accepted, {self.deliveries:,} delivered, {self.redeliveries:,} flagged,"
            f" {self.confirmations:,} confirmed, {sum(map(len, self.held.values())):,} held"
        )
