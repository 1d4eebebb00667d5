"""The filters that a receiver may put on its source (AMQP 1.0 §3.5.8), by their registered descriptors.

Each says of an encoded message whether the receiver wants it. The two legacy bindings are what AMQP 0-10
and its exchanges had: a key and a pattern for the subject, which stands for the routing key. A message
without a subject has the empty one; a subject too long for a routing key fits no binding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.codec import message
from broker.codec.message import WantedFields
from broker.errors import PeerError
from broker.queues.queue import Filter
from broker.queues.selector.selector import compile_selector

# Keys were short strings (AMQP 0-10 §3.3.3).
MAX_KEY = 255
ONE_WORD = "*"
ANY_WORDS = "#"
_PROPERTIES = 0x73
_SUBJECT = 3


class DirectBinding:
    """Passes the messages whose subject is the key."""

    def __init__(self, key: str) -> None:
        self.key = _checked(key)

    def matches(self, data: bytes) -> bool:
        return subject_of(data) == self.key


class TopicBinding:
    """Passes the messages whose subject fits: words between dots, of which ``*`` is one, ``#`` any number."""

    def __init__(self, pattern: str) -> None:
        self.pattern = _words(_checked(pattern))

    def matches(self, data: bytes) -> bool:
        subject = subject_of(data)
        return subject is not None and len(subject) <= MAX_KEY and _fits(self.pattern, _words(subject))


def _subject_wanted() -> WantedFields:
    wanted = WantedFields()
    wanted.field(_PROPERTIES, _SUBJECT)
    return wanted


_WANTED = _subject_wanted()


def subject_of(data: bytes) -> str | None:
    """The subject, empty if there is none; None for one that is no text, or a message that isn't whole."""
    places = message.value_places(data, _WANTED)
    if places is None:
        return None
    at = places[0]
    if at < 0 or data[at] == 0x40:
        return ""
    found = message.value_at(data, at)
    return found if isinstance(found, str) else None


def _checked(key: str) -> str:
    if len(key) > MAX_KEY:
        raise PeerError(
            "amqp:invalid-field", f"a binding key has at most {MAX_KEY} characters, not {len(key)}"
        )
    return key


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _fits(pattern: list[str], words: list[str]) -> bool:
    """Whether the words fit, at a cost of at most as many steps as both lengths multiplied.

    Only the last ``#`` met ever has to take one word more: what fitted before it, fitted.
    """
    at = word = 0
    rest_at, rest_word = -1, 0
    while word < len(words):
        if at < len(pattern) and pattern[at] == ANY_WORDS:
            rest_at, rest_word = at, word
            at += 1
        elif at < len(pattern) and pattern[at] in (ONE_WORD, words[word]):
            at += 1
            word += 1
        elif rest_at >= 0:
            rest_word += 1
            at, word = rest_at + 1, rest_word
        else:
            return False
    return all(left == ANY_WORDS for left in pattern[at:])


class AllOf:
    """Several filters: a message has to pass each of them (AMQP 1.0 §3.5.8)."""

    def __init__(self, parts: Sequence[Filter]) -> None:
        self.parts = parts

    def matches(self, data: bytes) -> bool:
        """Whether it passes all."""
        return all(part.matches(data) for part in self.parts)


# Each kind's descriptor, and what makes the filter from its string.
FILTERS: dict[str, Callable[[str], Filter]] = {
    "apache.org:legacy-amqp-direct-binding:string": DirectBinding,
    "apache.org:legacy-amqp-topic-binding:string": TopicBinding,
    "apache.org:selector-filter:string": compile_selector,
}


def compiled(filters: Sequence[tuple[str, str]]) -> Filter | None:
    """Filters of (descriptor, text) as one; None for none. PeerError where a text is no such filter."""
    parts = [FILTERS[kind](text) for kind, text in filters]
    if len(parts) == 1:
        return parts[0]
    return AllOf(parts) if parts else None
