"""Policy files: what is taken, and how every fault in them is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.config.policies import PolicySet
from broker.config.policy_files import load_policies, parse_policies
from broker.config.policy_schema import POLICY_FIELDS, policy_reference, policy_schema
from broker.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policies").mkdir()


def complaints(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_policies(text, "p.yaml")
    return str(refused.value).split("\n")


def policy(body: str) -> list[str]:
    """Complaints about one policy of these lines, which begin in line 3, column 5."""
    lines = "\n".join("    " + line for line in body.splitlines())
    return complaints(f'policies:\n  - match: "a"\n{lines}\n')


def patterns(policies: PolicySet) -> list[str]:
    return [each.pattern.text for each in policies.policies]


def test_the_shipped_example_is_the_design_s() -> None:
    policies = load_policies([ROOT / "policies"])
    assert patterns(policies) == ["orders.>"]
    settings = policies.effective("orders.eu").settings
    assert (settings.kind, settings.durable) == ("queue", True)
    assert (settings.max_count, settings.flow_stop_count, settings.flow_resume_count) == (1000, 900, 500)
    assert (settings.consumer_flow_limit, settings.consumer_flow_threshold) == (1000, 50)


@pytest.mark.parametrize("text", ["", "# nothing\n", "policies:\n", "policies: []\n", "\ufeff\n"])
def test_an_empty_file_has_no_policies(text: str) -> None:
    assert parse_policies(text, "p.yaml") == PolicySet()


def test_directories_and_files_are_read_once_each_in_order() -> None:
    for name, pattern in {"b.yaml": "b", "a.yml": "a", "notes.txt": "n"}.items():
        Path("policies", name).write_text(f"policies: [{{match: {pattern}}}]")
    read = load_policies([Path("policies"), Path("policies/b.yaml")])
    assert [str(each.place) for each in read.policies] == ["policies/a.yml:1:20", "policies/b.yaml:1:20"]


def test_the_complaint_of_the_style_guide() -> None:
    Path("policies/orders.yaml").write_text(
        '# orders\n\npolicies:\n- match: "orders.>"\n  kind: queue\n'
        "  max_count: 1000\n  flow_stop_cuont: 900\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_policies([Path("policies")])
    assert str(refused.value) == (
        "policies/orders.yaml:7:3: unknown key 'flow_stop_cuont' (did you mean 'flow_stop_count'?)"
    )


def test_all_faults_of_all_files_are_told_at_once_in_order() -> None:
    Path("policies/a.yaml").write_text(
        "policies:\n- match: a\n  max_count: many\n  max_count: 5\n  colour: red\n"
    )
    Path("policies/b.yaml").write_text("policies:\n- match: a.>.b\n  durable: off\n- kind: queue\n")
    with pytest.raises(ConfigError) as refused:
        load_policies([Path("policies"), Path("nowhere")])
    assert str(refused.value).split("\n") == [
        "policies/a.yaml:3:14: max_count: expected a whole number, not 'many'",
        "policies/a.yaml:4:3: duplicate key 'max_count' (first in line 3)",
        "policies/a.yaml:5:3: unknown key 'colour'",
        "policies/b.yaml:2:10: match: '>' stands for the rest and must be the last word",
        "policies/b.yaml:3:12: YAML reads a bare 'off' as a truth value: "
        "write true or false, or put the word in quotes",
        "policies/b.yaml:4:3: a policy needs 'match', the pattern of its addresses",
        "nowhere: no such file or directory",
    ]
    assert [problem.line for problem in refused.value.problems] == [3, 4, 5, 2, 3, 4, 0]


def test_one_pattern_has_one_policy() -> None:
    Path("policies/a.yaml").write_text("policies: [{match: orders}]")
    Path("policies/b.yaml").write_text("policies: [{match: orders}]")
    with pytest.raises(ConfigError) as refused:
        load_policies([Path("policies")])
    assert str(refused.value) == (
        "policies/b.yaml:1:20: 'orders' has a policy already, at policies/a.yaml:1:20"
    )


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("max_size: 10 TB", "3:15: max_size: expected a size such as 65536, 512 KB or 10 MB, not '10 TB'"),
        ("max_size: -5", "3:15: max_size: expected a size such as 65536, 512 KB or 10 MB, not -5"),
        ("max_count: 1.5", "3:16: max_count: expected a whole number, not 1.5"),
        ("max_count:", "3:15: max_count: expected a whole number, not an empty value"),
        ("max_count: [1]", "3:16: max_count: expected a whole number, not a list"),
        ("auto_create: 1", "3:18: auto_create: expected true or false, not 1"),
        (
            "duplicate_window: soon",
            "3:23: duplicate_window: expected a count such as 10000, a time such as 10m, or both, not 'soon'",
        ),
        ("dead_letter_address: a", "3:26: dead_letter_address is the node itself"),
        (
            "slow_consumer: 5",
            "3:20: slow_consumer: expected a rate, a time and an action such as `10/s for 30s notify`, not 5",
        ),
        (
            "flow_stop_count: 010",
            "3:22: YAML reads '010' as a number in its own way: write it in plain decimal digits",
        ),
        (
            "max_count: 1_000",
            "3:16: YAML reads '1_000' as a number in its own way: write it in plain decimal digits",
        ),
        (
            "max_count: 1:30",
            "3:16: YAML reads '1:30' as a number in its own way: write it in plain decimal digits",
        ),
        ("max_count: !!python/name:os.system x", "3:16: the tag !!python/name:os.system has no meaning here"),
        ("? [a]\n: 1", "3:7: a key must be a word"),
        ("1: 2", "3:5: a key must be a word"),
        ("<<: {max_count: 1}", "3:5: unknown key '<<'"),
        ("max_count: 5\nflow_stop_count: 6", "4:5: flow_stop_count 6 is more than max_count 5 (line 3)"),
        ("flow_control: 2MB\nmax_size: 1MB", "3:5: flow_stop_size 2 MB is more than max_size 1 MB (line 4)"),
        ("when_full: block\nreject_after: 3s", "4:5: reject_after '3s' and when_full 'block' disagree"),
        ("match: b", "3:5: duplicate key 'match' (first in line 2)"),
    ],
)
def test_a_fault_is_told_with_its_place(body: str, complaint: str) -> None:
    assert policy(body) == [f"p.yaml:{complaint}"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("policies: 5", "1:11: expected a list of policies, each begun with '-'"),
        ("policies: [5]", "1:12: expected a policy: a mapping with 'match' and settings"),
        ("policy: []", "1:1: unknown key 'policy' (did you mean 'policies'?)"),
        ("- match: a", "1:1: expected a mapping with the key 'policies'"),
        ("policies:\n  - match: [a", "2:14: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("policies:\n\t- match: a", "2:1: not valid YAML: found character '\\t' that cannot start any token"),
        ("policies: *nobody", "1:11: not valid YAML: found undefined alias 'nobody'"),
        ("a: 1\n---\nb: 2", "2:1: not valid YAML: but found another document"),
        ("policies:\n- match: a\x07b", "2:11: a character that YAML does not allow"),
        (b"policies:\n- match: \xff", "2:10: not UTF-8"),
        ("policies: [{match: off}]", "1:20: YAML reads a bare 'off' as a truth value: "
         "write true or false, or put the word in quotes"),
        ("policies: [{match: 5}]", '1:20: match: expected a pattern in quotes such as "orders.>", not 5'),
    ],
)  # fmt: skip
def test_a_file_of_the_wrong_shape_is_told_with_its_place(text: str | bytes, complaint: str) -> None:
    assert complaints(text)[0] == f"p.yaml:{complaint}"


def test_quoted_words_are_words() -> None:
    policies = parse_policies('policies: [{match: "on"}, {match: "5"}]', "p.yaml")
    assert sorted(patterns(policies)) == ["5", "on"]


def test_an_alias_is_what_it_stands_for() -> None:
    text = "policies:\n- {match: a, flow_control: &size 1MB}\n- {match: b, max_size: *size}\n"
    assert parse_policies(text, "p.yaml").effective("b").settings.max_size == 1 << 20


def test_alias_bombs_are_bounded() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 100000 values, aliases counted each time" in complaints("\n".join(levels))[0]


@pytest.mark.parametrize("text", ["policies: &a [*a]", "[" * 30 + "]" * 30])
def test_depth_is_bounded(text: str) -> None:
    assert "nested more than 20 deep" in complaints(text)[0]


def test_depth_that_no_parser_survives_is_told_too() -> None:
    assert complaints("[" * 5000) == ["p.yaml: nested too deep"]


def test_size_is_bounded() -> None:
    assert complaints(b" " * (1 << 20) + b" ") == ["p.yaml: larger than 1048576 bytes"]


# The schema and the reference come from the same table

GOOD: list[dict[str, Any]] = [
    {"match": "orders.>"},
    {"match": "a.*", "kind": "topic", "max_size": "10 MB", "max_count": 5, "auto_create": False},
    {"match": "#", "flow_control": {}},
    {"match": "#", "flow_control": None},
    {"match": "#", "flow_control": "60MB"},
    {"match": "#", "when_full": {"reject_after": "3s"}},
    {"match": "#", "when_full": "reject_after: 3s", "consumer_flow_threshold": "50%"},
    {"match": "#", "send_fail_if_no_space_after_timeout": 3000},
    {"match": "#", "overflow": "page", "memory_limit": "64 MB"},
    {"match": "#", "overflow": "dead_letter", "dead_letter_address": "dead letters", "max_delivery_count": 5},
    {"match": "#", "dead_letter_address": ""},
    {"match": "#", "dead_letter_address": None},
    {"match": "#", "duplicate_window": 10000},
    {"match": "#", "duplicate_window": "10 m"},
    {"match": "#", "duplicate_window": "10000 10m"},
    {"match": "#", "duplicate_window": {"count": 10000, "time": "10m"}},
]
BAD: list[dict[str, Any]] = [
    {},
    {"match": ""},
    {"match": "a..b"},
    {"match": ">.a"},
    {"match": "ord*"},
    {"match": "a", "flow_stop_cuont": 1},
    {"match": "a", "max_count": -1},
    {"match": "a", "max_count": "5"},
    {"match": "a", "max_count": True},
    {"match": "a", "max_size": "10 TB"},
    {"match": "a", "durable": "yes"},
    {"match": "a", "overflow": "pages"},
    {"match": "a", "duplicate_window": True},
    {"match": "a", "duplicate_window": "soon"},
    {"match": "a", "duplicate_window": "10m 10000"},
    {"match": "a", "duplicate_window": {}},
    {"match": "a", "duplicate_window": {"size": 5}},
    {"match": "a", "dead_letter_address": 5},
    {"match": "a", "dead_letter_address": "$events"},
    {"match": "a", "max_delivery_count": -1},
    {"match": "a", "flow_control": 0},
    {"match": "a", "flow_control": "fast"},
    {"match": "a", "when_full": {"reject": "3s"}},
    {"match": "a", "consumer_flow_threshold": "101%"},
    {"match": "a", "memory_limit": "1 TB"},
]


def test_the_schema_is_one_and_takes_the_example() -> None:
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((ROOT / "policies" / "example.yaml").read_text()), schema)
    jsonschema.validate(None, schema)


@pytest.mark.parametrize("good", GOOD)
def test_schema_and_parser_take_the_same(good: dict[str, Any]) -> None:
    jsonschema.validate({"policies": [good]}, policy_schema())
    assert patterns(parse_policies(yaml.safe_dump({"policies": [good]}), "p.yaml")) == [good["match"]]


@pytest.mark.parametrize("bad", BAD)
def test_schema_and_parser_refuse_the_same(bad: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"policies": [bad]}, policy_schema())
    assert complaints(yaml.safe_dump({"policies": [bad]}))


def test_the_reference_has_a_row_for_every_key() -> None:
    rows = policy_reference().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(POLICY_FIELDS)
