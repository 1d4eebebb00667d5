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
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli import arguments, ask, explain, listings, table
from broker.cli.main import UsageError
from broker.cli.printable import printable

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

# qpid-config's flags and the settings they stand for.
FLAGS = {
    "--max-queue-count": "max_count",
    "--max-queue-size": "max_size",
    "--limit-policy": "qpid.policy_type",
    "--flow-stop-size": "flow_stop_size",
    "--flow-resume-size": "flow_resume_size",
    "--flow-stop-count": "flow_stop_count",
    "--flow-resume-count": "flow_resume_count",
}
LIMIT_POLICIES = ("none", "reject", "ring")
LARGEST_FILE = 1 << 20

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
    _settings(_node_verb(verbs, "add", _add, "create a queue, a topic or a bridge", ("bridge",)))
    setting = _node_verb(verbs, "set", _set, "change a queue or a topic")
    _settings(setting)
    setting.add_argument("--dry-run", action="store_true", help="only say what it would do to its flow")
    _node_verb(verbs, "del", _del, "remove a node with its messages, or a bridge", ("subscription", "bridge"))
    for name, change in (("bind", _bind), ("unbind", _unbind)):
        what = "have a queue take" if name == "bind" else "have a queue no longer take"
        binding = _verb(verbs, name, change, f"{what} what is sent to a topic")
        binding.add_argument("topic", metavar="TOPIC")
        binding.add_argument("queue", metavar="QUEUE")
        # qpid-config's grammar has one; the broker says that there is no such thing here.
        binding.add_argument("key", nargs="?", metavar="KEY", help=argparse.SUPPRESS)
    applying = _verb(verbs, "apply", _apply, "apply policies")
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
    parser.add_argument("-b", "--broker", metavar="URL", default=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
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
    parser.add_argument("--durable", action="store_true", default=None)
    for flag, name in FLAGS.items():
        choices = LIMIT_POLICIES if flag == "--limit-policy" else None
        parser.add_argument(flag, dest=name, metavar=None if choices else "N", choices=choices)
    parser.add_argument("--selector", metavar="S", help="of a bridge: only messages that it selects")
    parser.add_argument("--argument", type=arguments.pair, action="append", default=[], metavar="KEY=VALUE")


def settings(args: argparse.Namespace) -> dict[str, object]:
    """The arguments of CREATE and UPDATE; texts, which the broker reads. UsageError if one stands twice."""
    given: dict[str, object] = {
        name: value for name in FLAGS.values() if (value := getattr(args, name)) is not None
    }
    if args.durable:
        given["durable"] = True
    if args.selector is not None:
        given["selector"] = args.selector
    for key, value in args.argument:
        if key in given:
            raise UsageError(f"{key} is given twice")
        given[key] = value
    return given


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


def _add(args: argparse.Namespace) -> int:
    return _change(args, "CREATE", "created")


def _set(args: argparse.Namespace) -> int:
    if not settings(args):
        raise UsageError("set needs a setting; --help lists them")
    return _try(args) if args.dry_run else _change(args, "UPDATE", "changed")


def _try(args: argparse.Namespace) -> int:
    if args.durable:
        raise UsageError("--durable can't be tried")
    with ask.connect(args) as management:
        answer = ask.operation(management, "effect", name=args.name, arguments=_given(args, taking_back=True))
    print(table.as_json(answer) if args.json else _effect_told(answer))
    return 0


def _effect_told(effect: ask.Row) -> str:
    """What a change would come to: the gate before and after, and each setting that changes."""
    before, after = effect["settings_before"], effect["settings_after"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    gates = f"{effect['gate_before']} now, {effect['gate_after']} then"
    lines = [f"{printable(str(effect['name']))}: {gates}; {table.word(effect['depth_msgs'])} messages there"]
    if effect["revoked_msgs"]:
        lines.append(f"{table.word(effect['revoked_msgs'])} credits would be taken back")
    changed = effect["changed"]
    assert isinstance(changed, list)
    lines += [f"{name}: {table.word(before[name])} -> {table.word(after[name])}" for name in changed]
    return "\n".join(lines if changed else [*lines, "nothing would change"])


def _bridge(args: argparse.Namespace) -> None:
    """Two names for a bridge, one for everything else."""
    if args.kind == "bridge":
        if args.target is None:
            raise UsageError("a bridge needs two nodes: FROM TO")
        args.name = f"{args.name}->{args.target}"
    elif getattr(args, "target", None) is not None:
        raise UsageError(f"a {args.kind} has one name")
    if args.kind != "bridge" and getattr(args, "selector", None) is not None:
        raise UsageError("--selector is for bridges")


def _change(args: argparse.Namespace, operation: str, done: str) -> int:
    _bridge(args)
    given = _given(args, taking_back=operation == "UPDATE")
    with ask.connect(args) as management:
        entity = ask.entity(management, operation, args.kind, args.name, given)
    return _done(args, done, entity)


def _given(args: argparse.Namespace, *, taking_back: bool) -> dict[str, object]:
    """The settings; to a node that exists, null for an empty one, which takes it back."""
    given = settings(args)
    return {name: None if taking_back and value == "" else value for name, value in given.items()}


def _del(args: argparse.Namespace) -> int:
    _bridge(args)
    with ask.connect(args) as management:
        ask.entity(management, "DELETE", args.kind, args.name)
    return _done(args, "deleted", {"name": args.name, "kind": args.kind})


def _done(args: argparse.Namespace, done: str, entity: ask.Row) -> int:
    print(table.as_json(entity) if args.json else f"{done} {args.kind} {printable(args.name)}")
    return 0


def _bind(args: argparse.Namespace) -> int:
    pair = {"source": args.topic, "target": args.queue}
    if args.key is not None:
        pair["key"] = args.key
    with ask.connect(args) as management:
        entity = ask.entity(management, "CREATE", "binding", f"{args.topic}/{args.queue}", pair)
    told = f"bound queue {printable(args.queue)} to topic {printable(args.topic)}"
    print(table.as_json(entity) if args.json else told)
    return 0


def _unbind(args: argparse.Namespace) -> int:
    with ask.connect(args) as management:
        ask.entity(management, "DELETE", "binding", f"{args.topic}/{args.queue}")
    pair = {"source": args.topic, "target": args.queue}
    told = f"unbound queue {printable(args.queue)} from topic {printable(args.topic)}"
    print(table.as_json(pair) if args.json else told)
    return 0


def _apply(args: argparse.Namespace) -> int:
    if args.dry_run and args.file is None:
        raise UsageError("--dry-run needs a FILE")
    given: dict[str, object] = {}
    if args.file is not None:
        given = {"text": _policies(args.file), "file": args.file}
    if args.dry_run:
        given["dry_run"] = True
    with ask.connect(args) as management:
        answer = ask.operation(management, "apply", **given)
    changed = answer["changed"]
    assert isinstance(changed, list)
    text = ", ".join(printable(str(name)) for name in changed) or "nothing that exists"
    told = f"would change: {text}" if args.dry_run else f"applied; changed: {text}"
    print(table.as_json(answer) if args.json else told)
    return 0


def _policies(name: str) -> str:
    """The file's text, which must fit into a request."""
    try:
        raw = sys.stdin.buffer.read(LARGEST_FILE) if name == "-" else Path(name).read_bytes()
        if len(raw) >= LARGEST_FILE - 4096:
            raise UsageError(f"{name}: larger than a request may be")
        return raw.decode()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: {error}") from error
