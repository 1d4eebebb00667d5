"""The bindings of AMQP 0-10 as filters, and which descriptor makes which filter."""

from __future__ import annotations

import pytest
from proton import Message

from broker.errors import PeerError
from broker.queues.filters import FILTERS, DirectBinding, TopicBinding, subject_of
from broker.queues.selector.condition import Selector


def about(subject: str | None) -> bytes:
    return bytes(Message(subject=subject, id="7", body="x").encode())


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "A.b", "a.bb", ""]),
        ("a.*", ["a.b", "a.", "a.*"], ["a", "a.b.c", "b.b"]),
        ("*.b", ["a.b", ".b"], ["b", "a.a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", ""]),
        ("#.c", ["c", "b.c", "a.b.c"], ["c.d", ""]),
        ("a.#.c", ["a.c", "a.b.c", "a.c.c", "a..c"], ["a", "c", "a.c.d"]),
        ("#", ["", "a", "a.b"], []),
        ("#.*", ["a", "a.b"], [""]),
        ("*.#.*", ["a.b", "a.b.c"], ["a", ""]),
        ("#.a.#.b.#", ["a.b", "x.a.y.b.z", "a.a.b.b"], ["b.a", "a"]),
        ("", [""], ["a", "."]),
        # Only whole words are wild.
        ("a*.b", ["a*.b"], ["ax.b"]),
    ],
)
def test_topic_bindings(pattern: str, fits: list[str], fails: list[str]) -> None:
    binding = TopicBinding(pattern)
    assert [subject for subject in fits if not binding.matches(about(subject))] == []
    assert [subject for subject in fails if binding.matches(about(subject))] == []


def test_a_direct_binding_takes_its_key_only() -> None:
    binding = DirectBinding("a.*")
    assert binding.matches(about("a.*"))
    assert not any(binding.matches(about(subject)) for subject in ("a.b", "a.*.", "A.*", "", None))


def test_no_subject_is_the_empty_one() -> None:
    assert DirectBinding("").matches(about(None))
    assert TopicBinding("#").matches(about(None))
    assert not TopicBinding("*").matches(about(None))
    assert DirectBinding("").matches(b"\x00\x53\x77\x40")


def test_a_topic_binding_does_not_backtrack() -> None:
    assert not TopicBinding("#.a." * 60 + "b").matches(about("a." * 127 + "c"))


def test_a_subject_too_long_for_a_routing_key_fits_none() -> None:
    assert TopicBinding("#").matches(about("a" * 255))
    assert not TopicBinding("#").matches(about("a" * 256))
    assert not DirectBinding("a" * 255).matches(about("a" * 256))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x53\x73\xc0\x05\x04\x40\x40\x40\xa0\x00",
        b"\x00\x53\x73\xc0\x05\x04\x40\x40\x40\xa1\x09",
        b"\x00\x53\x73\xc1\x01\x00",
        b"nonsense",
    ],
)
def test_a_message_that_is_not_whole_or_has_no_text_for_a_subject(data: bytes) -> None:
    assert subject_of(data) == ("" if not data else None)
    assert not DirectBinding("x").matches(data)
    assert not TopicBinding("*").matches(data)


@pytest.mark.parametrize("binding", [DirectBinding, TopicBinding])
def test_a_long_key_is_refused(binding: type[DirectBinding] | type[TopicBinding]) -> None:
    binding("k" * 255)
    with pytest.raises(PeerError, match="at most 255 characters, not 256"):
        binding("k" * 256)


@pytest.mark.parametrize(
    ("symbol", "kind"),
    [
        ("apache.org:legacy-amqp-direct-binding:string", DirectBinding),
        ("apache.org:legacy-amqp-topic-binding:string", TopicBinding),
        ("apache.org:selector-filter:string", Selector),
    ],
)
def test_descriptors(symbol: str, kind: type) -> None:
    assert isinstance(FILTERS[symbol]("a"), kind)
