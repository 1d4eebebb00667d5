"""Print the JSON Schema of the policy files, of the broker's own settings, of access rules or of events.

`reference` prints every setting with its variable, flag, type and default, as Markdown.
"""

from __future__ import annotations

import argparse
import json

EXAMPLES = (
    ("sluice schema", "of policy files, for an editor"),
    ("sluice schema broker", "of broker.yaml"),
    ("sluice schema acl", "of the file of access rules"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=("policies", "broker", "acl", "events", "reference"),
        default="policies",
        help="(default: policies)",
    )


def run(args: argparse.Namespace) -> int:
    """Needs no broker."""
    if args.what == "reference":
        from broker.cli.terminal.reference import reference

        print(reference(), end="")
    else:
        print(json.dumps(SCHEMAS[args.what](), indent=2))
    return 0


def _policies() -> dict[str, object]:
    from broker.config.policy_schema import policy_schema

    return policy_schema()


def _broker() -> dict[str, object]:
    from broker.config.broker import broker_schema

    return broker_schema()


def _acl() -> dict[str, object]:
    from broker.security.rules import acl_schema

    return acl_schema()


def _events() -> dict[str, object]:
    from broker.manage.events.schema import event_schema

    return event_schema()


SCHEMAS = {"policies": _policies, "broker": _broker, "acl": _acl, "events": _events}
