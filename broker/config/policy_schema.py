"""The keys of a policy file, as the parser, the JSON Schema and the documentation see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.config import fields
from broker.config.fields import Field, Flag, Schema
from broker.config.node import FIELDS
from broker.config.patterns import Pattern, parse_pattern, parse_subscription_pattern
from broker.units import show

# A rough shape for editors; the parser says precisely what is wrong.
_WORDS = r"(([^.*>#]+|\*)\.)*([^.*>#]+|\*|>|#)"
_PATTERN = rf"^{_WORDS}(/{_WORDS})?$"


@dataclass(frozen=True, slots=True)
class PatternType:
    """Words between dots with wildcards; where it is for subscriptions, whose they are behind a slash."""

    label = "pattern"
    of_subscriptions: bool = False

    def parse(self, value: object) -> Pattern:
        if not isinstance(value, str):
            raise ValueError(f'expected a pattern in quotes such as "orders.>", not {show(value)}')
        return parse_subscription_pattern(value) if self.of_subscriptions else parse_pattern(value)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": _PATTERN}


MATCH = Field(
    "match",
    PatternType(),
    "required",
    "The addresses it is for: '*' is one word, '>' at the end one or more, '#' at the end any number. With"
    " kind: subscription the topics', and behind a slash the subscribers', as container.link",
)
AUTO_CREATE = Field(
    "auto_create",
    Flag(),
    "as the broker",
    "Whether a client that attaches to an address nobody declared creates the node",
)

POLICY_FIELDS: Mapping[str, Field] = {"match": MATCH, "auto_create": AUTO_CREATE, **FIELDS}


def policy_schema() -> Schema:
    """Make the JSON Schema of a policy file."""
    policy = {**fields.object_schema(POLICY_FIELDS.values()), "required": ["match"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice policy file",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {"policies": {"type": ["array", "null"], "items": policy}},
    }


def policy_reference() -> str:
    """Show every key of a policy in a Markdown table."""
    return fields.reference(POLICY_FIELDS.values())
