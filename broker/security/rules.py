"""The rules' file into an ``Acl``, or every fault in it at once, each with its line and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.config import fields
from broker.config.fields import Field, Schema, Several, Type, Word, unknown_key
from broker.config.yaml import Block, Items, Node, YamlEntry, items_of, plain, read_bytes, read_file
from broker.errors import ConfigError, Problem
from broker.security.acl import OPEN, Acl, Action, Rule
from broker.security.pattern import EVERYTHING, Template, parse_template
from broker.units import show

ALL = "all"
EMPTY = (
    "it has no rules, and without any everything is allowed: say so with the rule '- allow: all',"
    " or leave security.acl out"
)
# A rough shape for editors; the parser says precisely what is wrong.
_WORD = r"(\*|([^.*>#$]|\$(?!\{)|\$\{user\})+)"
_TEMPLATE = rf"^(({_WORD}\.)*({_WORD}|>|#))$"


@dataclass(frozen=True, slots=True)
class RuleName:
    """A user's, a group's or a virtual host's name, taken as it stands."""

    label = "name"

    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"expected a name, not {show(value)}")
        return value

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class TemplateType:
    """A pattern of addresses."""

    label = "pattern"

    def parse(self, value: object) -> Template:
        if not isinstance(value, str):
            raise ValueError(f'expected a pattern in quotes such as "orders.>", not {show(value)}')
        return parse_template(value)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": _TEMPLATE}


_ACTIONS = Several(Word((*map(str, Action), ALL)), 1)
_NAMES = Several(RuleName(), 1)

RULE_FIELDS: Mapping[str, Field] = fields.table(
    Field("allow", _ACTIONS, "this or `deny`", "What those it is for may do; `all` is every action"),
    Field("deny", _ACTIONS, "this or `allow`", "What they may not do"),
    Field("users", _NAMES, "everybody", "The users it is for; `anonymous` is who didn't say"),
    Field("groups", _NAMES, "everybody", "The groups it is for, beside the users"),
    Field(
        "virtual_hosts", _NAMES, "all", "The virtual hosts it is for; `/` is for what belongs to none of them"
    ),
    Field(
        "addresses",
        Several(TemplateType(), 1),
        "all",
        "Where: '*' is one word, '>' at the end one or more, '#' at the end any number, `${user}` the user's"
        " name",
    ),
)


def load_acl(path: Path | None) -> Acl:
    """The rules of a file; without one everything is allowed. ConfigError with all that is wrong in it."""
    if path is None:
        return OPEN
    problems: list[Problem] = []
    return _checked(read_file(path, problems), str(path), problems)


def parse_acl(text: str | bytes, name: str) -> Acl:
    """The same for a text in hand; ``name`` is what messages call it."""
    problems: list[Problem] = []
    raw = text.encode() if isinstance(text, str) else text
    return _checked(read_bytes(raw, name, problems), name, problems)


def acl_schema() -> Schema:
    """The JSON Schema of a rules' file."""
    rule = fields.object_schema(RULE_FIELDS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice access rules",
        "type": "object",
        "additionalProperties": False,
        "required": ["rules"],
        "properties": {
            "rules": {
                "type": "array",
                "minItems": 1,
                "items": {**rule, "oneOf": [{"required": ["allow"]}, {"required": ["deny"]}]},
            }
        },
    }


def _checked(root: Node | None, name: str, problems: list[Problem]) -> Acl:
    rules = [_rule(item, problems) for item in items_of(root, "rules", problems)]
    if not rules and not problems:
        problems.append(Problem(name, 0, 0, EMPTY))
    if problems:
        raise ConfigError(tuple(sorted(problems, key=lambda each: (each.line, each.column))))
    return Acl(tuple(rule for rule in rules if rule is not None))


def _rule(item: Node, problems: list[Problem]) -> Rule | None:
    if not isinstance(item, Block):
        problems.append(item.place.problem("expected a rule: a mapping with 'allow' or 'deny'"))
        return None
    before = len(problems)
    entries = {entry.key: entry for entry in item.entries}
    values = {key: _values(entry, problems) for key, entry in entries.items()}
    verbs = [key for key in ("allow", "deny") if key in entries]
    if len(verbs) != 1 and not item.broken and len(problems) == before:
        text = "a rule needs 'allow' or 'deny'" if not verbs else "a rule has 'allow' or 'deny', not both"
        problems.append(item.place.problem(text))
    if len(problems) > before or item.broken:
        return None
    words, addresses = values[verbs[0]], values.get("addresses", (EVERYTHING,))
    if words == ("connect",) and "addresses" in entries:
        text = "connect is about a virtual host: a rule for it alone has no addresses"
        problems.append(entries["addresses"].place.problem(text))
    return Rule(
        allows=verbs[0] == "allow",
        actions=tuple(each for each in Action if each in words or ALL in words),
        users=_names(values, "users"),
        groups=_names(values, "groups"),
        hosts=_names(values, "virtual_hosts"),
        addresses=tuple(each for each in addresses if isinstance(each, Template)),
        place=str(item.place),
    )


def _names(values: Mapping[str, tuple[object, ...]], key: str) -> frozenset[str]:
    return frozenset(map(str, values.get(key, ())))


def _values(entry: YamlEntry, problems: list[Problem]) -> tuple[object, ...]:
    """What one key lists; each fault at its own item."""
    if entry.key not in RULE_FIELDS:
        problems.append(entry.place.problem(unknown_key(entry.key, RULE_FIELDS)))
        return ()
    type_ = RULE_FIELDS[entry.key].type
    assert isinstance(type_, Several)
    if not isinstance(entry.value, Items) or not entry.value.items:
        return _parsed(entry.key, type_, entry.value, problems)
    return tuple(
        value for item in entry.value.items for value in _parsed(entry.key, type_, item, problems, True)
    )


def _parsed(
    key: str, type_: Several, node: Node, problems: list[Problem], one: bool = False
) -> tuple[object, ...]:
    parser: Type = type_.item if one else type_
    try:
        value = parser.parse(plain(node))
    except ValueError as error:
        problems.append(node.place.problem(f"{key}: {error}"))
        return ()
    return (value,) if one else tuple(value)  # type: ignore[arg-type]
