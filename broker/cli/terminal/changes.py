"""What `sluice config` changes: nodes, bridges, bindings and policies, each by one request."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from broker.cli.main import UsageError
from broker.cli.terminal import ask, table
from broker.cli.terminal.printable import printable
from broker.cli.verbs import nodes

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


def create(args: argparse.Namespace) -> int:
    """A new node or bridge; refused where there is one."""
    return _change(args, "CREATE", "created")


def change(args: argparse.Namespace) -> int:
    """New settings for a node; with --dry-run, what they would come to."""
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


def delete(args: argparse.Namespace) -> int:
    """A node goes with its messages, or a bridge."""
    _bridge(args)
    with ask.connect(args) as management:
        ask.entity(management, "DELETE", args.kind, args.name)
    return _done(args, "deleted", {"name": args.name, "kind": args.kind})


def _done(args: argparse.Namespace, done: str, entity: ask.Row) -> int:
    print(table.as_json(entity) if args.json else f"{done} {args.kind} {printable(args.name)}")
    return 0


def bind(args: argparse.Namespace) -> int:
    """A queue takes what is sent to a topic."""
    pair = {"source": args.topic, "target": args.queue}
    if args.key is not None:
        pair["key"] = args.key
    with ask.connect(args) as management:
        ends = nodes.at(management, args.topic, "topic"), nodes.at(management, args.queue)
        entity = ask.entity(management, "CREATE", "binding", f"{args.topic}/{args.queue}", pair)
        nodes.tell_created(management, "config", *ends)
    told = f"bound queue {printable(args.queue)} to topic {printable(args.topic)}"
    print(table.as_json(entity) if args.json else told)
    return 0


def unbind(args: argparse.Namespace) -> int:
    """And takes it no longer."""
    pair = {"source": args.topic, "target": args.queue}
    with ask.connect(args) as management:
        # The name alone could be another's: both ends may hold slashes.
        ask.entity(management, "DELETE", "binding", f"{args.topic}/{args.queue}", pair)
    told = f"unbound queue {printable(args.queue)} from topic {printable(args.topic)}"
    print(table.as_json(pair) if args.json else told)
    return 0


def apply(args: argparse.Namespace) -> int:
    """Policies of a file; without one, those of the broker's own files as they are now."""
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
