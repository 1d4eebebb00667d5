"""Show and change queues, topics and policies of a running broker, in qpid-config's words.

sluice config                            what the broker has
sluice config queues|exchanges [FILTER]  its queues, or its topics
sluice config list                       both
sluice config subscriptions|bindings|policies [FILTER]
sluice config add queue|topic NAME [SETTINGS]
sluice config set queue|topic NAME [SETTINGS] [--dry-run]
sluice config del queue|topic|subscription NAME
sluice config bind|unbind TOPIC QUEUE    the queue takes what is sent to the topic, or no longer
sluice config add bridge FROM TO [--selector S] [--durable]
sluice config del bridge FROM TO
sluice config apply [FILE] [--dry-run]   policies of a file; without one, the broker reads its own again
sluice config explain ADDRESS            every setting there, and where it comes from

SETTINGS are --durable, --max-queue-count N, --max-queue-size N, --limit-policy none|reject|ring,
--flow-stop-size N, --flow-resume-size N, --flow-stop-count N, --flow-resume-count N and, for every
other setting, --argument KEY=VALUE. `set` with an empty VALUE takes a setting back, so that the
policies' holds again. Sizes take a unit, as in 10MB.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.cli.terminal import arguments, ask, changes, listings, table
from broker.cli.verbs import explain

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

HELP = {
    "--max-queue-count": "most messages",
    "--max-queue-size": "most bytes",
    "--limit-policy": "what happens there: none or reject refuse, ring drops the oldest",
    "--flow-stop-size": "producers stop at so many bytes",
    "--flow-resume-size": "and go on below so many",
    "--flow-stop-count": "producers stop at so many messages",
    "--flow-resume-count": "and go on below so many",
}

EXAMPLES = (
    (
        "sluice config add queue orders --max-queue-count 1000 --flow-stop-count 900",
        "a queue with thresholds",
    ),
    ("sluice config set queue orders --flow-resume-count 500", "at runtime"),
    (
        "sluice config set queue orders --argument flow_resume_count=",
        "take it back: the policies' value holds again",
    ),
    ("sluice config queues 'ord*'", "what there is, and its thresholds"),
    ("sluice config add topic news", "a topic"),
    ("sluice config bind news orders", "the queue takes what is sent to the topic"),
    ("sluice config unbind news orders", "and no longer"),
    ("sluice config set queue orders --flow-stop-count 100 --dry-run", "what that would do"),
    ("sluice config apply policies.yaml --dry-run", "what policies of a file would change"),
    ("sluice config apply policies.yaml", "apply them at once"),
    ("sluice config policies", "those that hold, and the line each stands on"),
    ("sluice config explain orders", "every setting, and the line it comes from"),
    ("sluice config del queue orders", "with its messages"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command each; -b and --json may stand before or after it."""
    arguments.add_broker(parser)
    arguments.add_json(parser)
    parser.set_defaults(verb=_overview)
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, listing in listings.LISTINGS.items():
        inner = _verb(verbs, name, listings.show, f"list {listings.HELP[name]}")
        inner.add_argument("filter", nargs="?", metavar="FILTER", help="a name; * and ? are wildcards")
        inner.set_defaults(listing=listing)
    _settings(_node_verb(verbs, "add", changes.create, "create a queue, a topic or a bridge", ("bridge",)))
    setting = _node_verb(verbs, "set", changes.change, "change a queue or a topic")
    _settings(setting)
    setting.add_argument("--dry-run", action="store_true", help="only say what it would do to its flow")
    _node_verb(
        verbs,
        "del",
        changes.delete,
        "remove a node with its messages, or a bridge",
        ("subscription", "bridge"),
    )
    for name, change in (("bind", changes.bind), ("unbind", changes.unbind)):
        what = "have a queue take" if name == "bind" else "have a queue no longer take"
        binding = _verb(verbs, name, change, f"{what} what is sent to a topic")
        binding.add_argument("topic", metavar="TOPIC")
        binding.add_argument("queue", metavar="QUEUE")
        # qpid-config's grammar has one; the broker says that there is no such thing here.
        binding.add_argument("key", nargs="?", metavar="KEY", help=argparse.SUPPRESS)
    applying = _verb(verbs, "apply", changes.apply, "apply policies")
    applying.add_argument(
        "file", nargs="?", metavar="FILE", help="'-': stdin; without: the broker's own again"
    )
    applying.add_argument("--dry-run", action="store_true", help="only say what would change")
    _verb(verbs, "explain", explain.run, "where settings come from").add_argument(
        "address", metavar="ADDRESS"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the sub-command."""
    verb: Callable[[argparse.Namespace], int] = args.verb
    return verb(args)


def _verb(
    verbs: Verbs, name: str, verb: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    # Suppressed: a default here would undo what stood before the sub-command.
    parser.add_argument(
        "-b",
        "--broker",
        metavar="URL",
        type=arguments.with_login,
        default=argparse.SUPPRESS,
        help="as before the command",
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(verb=verb)
    return parser


def _node_verb(
    verbs: Verbs,
    name: str,
    verb: Callable[[argparse.Namespace], int],
    text: str,
    more: tuple[str, ...] = (),
) -> argparse.ArgumentParser:
    parser = _verb(verbs, name, verb, text)
    parser.add_argument("kind", choices=("queue", "topic", *more))
    bridges = "bridge" in more
    parser.add_argument(
        "name", metavar="NAME", help="of a bridge: the node that is copied" if bridges else None
    )
    if bridges:
        parser.add_argument(
            "target", metavar="TO", nargs="?", help="of a bridge: the node that gets the copies"
        )
    return parser


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--durable", action="store_true", default=None, help="kept over a restart")
    for flag, name in changes.FLAGS.items():
        choices = changes.LIMIT_POLICIES if flag == "--limit-policy" else None
        parser.add_argument(
            flag, dest=name, metavar=None if choices else "N", choices=choices, help=HELP[flag]
        )
    parser.add_argument("--selector", metavar="S", help="of a bridge: only messages that it selects")
    parser.add_argument(
        "--argument",
        type=arguments.pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting; may repeat",
    )


def _overview(args: argparse.Namespace) -> int:
    with ask.connect(args) as management:
        broker = ask.entity(management, "READ", "broker", "broker")
    if args.json:
        print(table.as_json(broker))
        return 0
    for name in (
        "version",
        "queues",
        "topics",
        "subscriptions",
        "connections",
        "depth_msgs",
        "stopped_nodes",
        "holds",
    ):
        print(f"{name:<14} {table.word(broker.get(name))}")
    return 0
