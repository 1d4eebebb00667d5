"""From a certificate to a user: one field by one rule; what is missing, doubled or odd is nobody."""

from __future__ import annotations

import pytest

from broker.security.subject import subject, user_of

FULL = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Orders, Inc."),),
        (("commonName", "alice"),),
    ),
    "subjectAltName": (
        ("DNS", "host.example.org"),
        ("email", "alice@example.org"),
        ("URI", "spiffe://example.org/alice"),
        ("IP Address", "10.0.0.1"),
    ),
}


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        ("CN", "alice"),
        ("subject", r"CN=alice,O=Orders\, Inc.,C=DE"),
        ("SAN email", "alice@example.org"),
        ("SAN dns", "host.example.org"),
        ("SAN uri", "spiffe://example.org/alice"),
    ],
)
def test_each_rule_finds_its_field(rule: str, user: str) -> None:
    assert user_of(FULL, rule) == user
    assert user_of({}, rule) == ""
    assert user_of({"subject": (), "subjectAltName": ()}, rule) == ""


@pytest.mark.parametrize(
    "name", ["", " alice", "alice ", "a\x00b", "a\nb", "a\x1b[2J", "a\u202eb", "a" * 257, "\u200balice"]
)
def test_what_is_no_name_is_nobody(name: str) -> None:
    assert user_of({"subject": ((("commonName", name),),)}, "CN") == ""


@pytest.mark.parametrize("name", ["$broker", "anonymous", "#all", "!alice", "*", "*.example.org"])
def test_a_certificate_cannot_bear_a_name_that_no_user_may(name: str) -> None:
    """Nor one that is compared otherwise than it is written."""
    assert user_of({"subject": ((("commonName", name),),)}, "CN") == ""
    assert user_of({"subject": ((("commonName", "\uff41lice"),),)}, "CN") == ""


def test_two_of_a_kind_are_nobody() -> None:
    two = {"subject": ((("commonName", "alice"),), (("commonName", "root"),))}
    assert user_of(two, "CN") == ""
    mails = {"subjectAltName": (("email", "a@example.org"), ("email", "b@example.org"))}
    assert user_of(mails, "SAN email") == ""


def test_a_subject_can_be_read_in_one_way_only() -> None:
    """What is within a value never looks like another part of the name."""
    forged = {"subject": ((("organizationName", "x,CN=root"),), (("commonName", "eve"),))}
    assert subject(forged) == r"CN=eve,O=x\,CN\=root"
    together = {"subject": ((("commonName", "eve"), ("userId", "1")),)}
    assert subject(together) == "CN=eve+UID=1"
    assert subject({"subject": ((("commonName", "#a"),), (("commonName", " b "),))}) == r"CN=\ b\ ,CN=\#a"
