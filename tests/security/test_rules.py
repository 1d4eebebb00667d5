"""The rules' file: what it may say, and every fault at its line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.errors import ConfigError
from broker.security.acl import Action
from broker.security.identity import Identity
from broker.security.rules import acl_schema, load_acl, parse_acl

GOOD = """\
# Teams have what is below their name.
rules:
  - deny: [purge, delete]
    groups: [producers]
  - allow: all
    addresses: ["${user}.#", $temporary]
  - allow: [send, receive]
    users: alice, bob
    groups: [staff]
    virtual_hosts: [shop, /]
    addresses: orders.>
  - allow: connect
"""


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_acl(text, "acl.yaml")
    return str(refused.value).split("\n")


def test_a_file_says_rules_in_their_order() -> None:
    acl = parse_acl(GOOD, "acl.yaml")
    assert [rule.told for rule in acl.rules] == [
        "acl.yaml:3:5: deny delete, purge for group producers",
        "acl.yaml:5:5: allow all at ${user}.#, $temporary for everybody",
        "acl.yaml:7:5: allow send, receive at orders.> for user alice, bob and group staff in /, shop",
        "acl.yaml:12:5: allow connect for everybody",
    ]
    assert acl.decide(Identity("bob"), Action.SEND, "shop", "orders.eu").allowed
    assert not acl.decide(Identity("bob"), Action.SEND, "lab", "orders.eu").allowed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rules:\n  - alow: send\n", ["acl.yaml:2:5: unknown key 'alow' (did you mean 'allow'?)"]),
        ("rules:\n  - users: bob\n", ["acl.yaml:2:5: a rule needs 'allow' or 'deny'"]),
        ("rules:\n- {allow: send, deny: all}\n", ["acl.yaml:2:3: a rule has 'allow' or 'deny', not both"]),
        ("rules:\n  - {}\n", ["acl.yaml:2:5: a rule needs 'allow' or 'deny'"]),
        ("rules:\n  - send\n", ["acl.yaml:2:5: expected a rule: a mapping with 'allow' or 'deny'"]),
        ("rules: send\n", ["acl.yaml:1:8: expected a list of rules, each begun with '-'"]),
        ("rule: []\n", ["acl.yaml:1:1: unknown key 'rule' (did you mean 'rules'?)"]),
        ("- allow: all\n", ["acl.yaml:1:1: expected a mapping with the key 'rules'"]),
        (
            "rules:\n  - allow: all\n    addresses: [a, 'a.>.b', 'b*', '${usr}.x', 7]\n",
            [
                "acl.yaml:3:20: addresses: '>' stands for the rest and must be the last word",
                "acl.yaml:3:29: addresses: '*' stands for whole words only, not for a part of 'b*'",
                "acl.yaml:3:35: addresses: '${usr}': only ${user} stands for something",
                'acl.yaml:3:47: addresses: expected a pattern in quotes such as "orders.>", not 7',
            ],
        ),
        (
            "rules:\n  - allow: connect\n    addresses: a\n",
            ["acl.yaml:3:5: connect is about a virtual host: a rule for it alone has no addresses"],
        ),
        ("rules:\n  - allow: []\n", ["acl.yaml:2:12: allow: expected at least 1"]),
        ("rules:\n- {allow: all, users: [7]}\n", ["acl.yaml:2:24: users: expected a name, not 7"]),
        ("rules:\n- allow: all\n  allow: send\n", ["acl.yaml:3:3: duplicate key 'allow' (first in line 2)"]),
    ],
)  # fmt: skip
def test_faults_have_their_place(text: str, wanted: list[str]) -> None:
    assert complaints(text) == wanted


def test_an_unknown_action_is_helped_with() -> None:
    [told] = complaints("rules:\n  - allow: [send, recieve]\n")
    assert told.startswith("acl.yaml:2:19: allow: expected 'connect', 'create', ")
    assert told.endswith("not 'recieve' (did you mean 'receive'?)")


def test_all_faults_are_told_at_once() -> None:
    assert len(complaints("rules:\n  - allow: sned\n  - x: 1\n  - 3\nmore: 1\n")) == 4


@pytest.mark.parametrize("text", ["", "rules:\n", "rules: []\n", "# nothing\n"])
def test_a_file_without_rules_is_refused(text: str) -> None:
    """One that was cut short must not open the broker."""
    [told] = complaints(text)
    assert told.startswith("acl.yaml: it has no rules, and without any everything is allowed")


def test_no_file_is_no_rules_and_a_missing_one_a_fault(tmp_path: Path) -> None:
    assert load_acl(None).rules == ()
    with pytest.raises(ConfigError, match=r"acl\.yaml: cannot be read: No such file"):
        load_acl(tmp_path / "acl.yaml")


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        ({"allow": "all"}, True),
        ({"deny": ["send", "move"], "users": ["a"], "groups": "g", "virtual_hosts": ["/"]}, True),
        ({"allow": "send", "addresses": ["orders.>", "${user}.#", "$broker", "i-${user}", "*", "a/c"]}, True),
        ({"allow": "sned"}, False),
        ({"allow": "send", "deny": "send"}, False),
        ({"users": ["a"]}, False),
        ({"allow": "send", "addresses": ["a.>.b"]}, False),
        ({"allow": "send", "addresses": ["${usr}"]}, False),
        ({"allow": "send", "colour": "red"}, False),
    ],
)  # fmt: skip
def test_the_schema_takes_what_the_parser_takes(rule: dict[str, Any], good: bool) -> None:
    document = {"rules": [rule]}
    found = list(jsonschema.Draft202012Validator(acl_schema()).iter_errors(document))
    if "sned" not in str(rule):  # a text may be a list with commas: the schema can't look into it
        assert (found == []) is good, found
    try:
        parse_acl(yaml.safe_dump(document), "acl.yaml")
    except ConfigError:
        assert not good
    else:
        assert good
