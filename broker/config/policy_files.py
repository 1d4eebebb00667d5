"""Reading of policy files: a set of policies, or every fault in all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from broker.config.fields import unknown_key
from broker.config.node import SettingError, normalise, read
from broker.config.patterns import Pattern
from broker.config.policies import Policy, PolicySet, Setting
from broker.config.policy_schema import AUTO_CREATE, MATCH, POLICY_FIELDS, PatternType
from broker.config.thresholds import contradictions
from broker.config.yaml import (
    Block,
    Node,
    SourcePlace,
    YamlEntry,
    items_of,
    plain,
    read_bytes,
    read_file,
)
from broker.errors import ConfigError, Problem

SUFFIXES = (".yaml", ".yml")

SUBSCRIPTION = "subscription"
# Settings that a subscription has from its receiver.
_NOT_THEIRS = {
    "auto_create": "a subscription comes with its receiver: auto_create is a topic's",
    "durable": "a subscription is durable if its receiver asks for it: durable is a topic's",
    "cell": "a subscription is where its topic is: cell is a topic's",
}


def load_policies(paths: Sequence[Path]) -> PolicySet:
    """Read the policies of these files, and of every YAML file of these directories, in order of name.

    ConfigError with all that is wrong in any of them.
    """
    problems: list[Problem] = []
    policies: list[Policy] = []
    for path in _files(paths, problems):
        policies += _policies(read_file(path, problems), problems)
    return _checked(policies, problems)


def parse_policies(text: str | bytes, name: str) -> PolicySet:
    """Read the policies of a text, which faults call ``name``. ConfigError as for files."""
    problems: list[Problem] = []
    raw = text.encode() if isinstance(text, str) else text
    return _checked(list(_policies(read_bytes(raw, name, problems), problems)), problems)


def _files(paths: Sequence[Path], problems: list[Problem]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        for file in _expanded(path, problems):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _expanded(path: Path, problems: list[Problem]) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if path.exists():
        return [path]
    problems.append(SourcePlace(str(path)).problem("no such file or directory"))
    return []


def _checked(policies: list[Policy], problems: list[Problem]) -> PolicySet:
    problems = problems + _repeated(policies)
    if problems:
        raise ConfigError(tuple(_in_order(problems)))
    return PolicySet.of(policies)


def _in_order(problems: list[Problem]) -> list[Problem]:
    files = {problem.file: index for index, problem in reversed(list(enumerate(problems)))}
    return sorted(problems, key=lambda problem: (files[problem.file], problem.line, problem.column))


def _repeated(policies: Iterable[Policy]) -> list[Problem]:
    first: dict[tuple[bool, str], SourcePlace] = {}
    problems = []
    for policy in policies:
        if policy.key in first:
            text = f"{policy.pattern.text!r} has a policy already, at {first[policy.key]}"
            problems.append(policy.place.problem(text))
        first.setdefault(policy.key, policy.place)
    return problems


def _policies(root: Node | None, problems: list[Problem]) -> Iterator[Policy]:
    for item in items_of(root, "policies", problems):
        if not isinstance(item, Block):
            problems.append(item.place.problem("expected a policy: a mapping with 'match' and settings"))
            continue
        policy = _policy(item, problems)
        if policy is not None:
            yield policy


def _policy(block: Block, problems: list[Problem]) -> Policy | None:
    entries = {entry.key: entry for entry in block.entries}
    before = len(problems)
    kind = entries.get("kind")
    of_subscriptions = kind is not None and plain(kind.value) == SUBSCRIPTION
    values = {key: _value(entry, problems, of_subscriptions) for key, entry in entries.items()}
    pattern, auto_create = values.pop("match", None), values.pop("auto_create", None)
    if "match" not in entries and not block.broken:
        problems.append(block.place.problem("a policy needs 'match', the pattern of its addresses"))
    settings = _settings(entries, problems) if len(problems) == before else ()
    if not isinstance(pattern, Pattern):
        return None
    if of_subscriptions:
        problems += [entries[key].place.problem(why) for key, why in _NOT_THEIRS.items() if key in entries]
    elif pattern.literal and values.get("dead_letter_address") == pattern.text:
        place = entries["dead_letter_address"].value.place
        problems.append(place.problem("dead_letter_address is the node itself"))
    created = auto_create if isinstance(auto_create, bool) else None
    origin = str(entries["auto_create"].place) if created is not None else ""
    return Policy(pattern, settings, created, origin, entries["match"].value.place, of_subscriptions)


def _value(entry: YamlEntry, problems: list[Problem], of_subscriptions: bool) -> object:
    if entry.key not in POLICY_FIELDS:
        problems.append(entry.place.problem(unknown_key(entry.key, POLICY_FIELDS)))
        return None
    try:
        return _parsed(entry, of_subscriptions)
    except SettingError as error:
        problems.append(entry.value.place.problem(error.reason))
    return None


def _parsed(entry: YamlEntry, of_subscriptions: bool) -> object:
    own_types = {MATCH.name: PatternType(of_subscriptions), AUTO_CREATE.name: AUTO_CREATE.type}
    for own in (MATCH, AUTO_CREATE):
        if entry.key == own.name:
            try:
                return own_types[own.name].parse(plain(entry.value))
            except ValueError as error:
                raise SettingError(f"{own.name}: {error}", own.name) from None
    return read(entry.key, plain(entry.value))


def _settings(entries: dict[str, YamlEntry], problems: list[Problem]) -> tuple[Setting, ...]:
    """Check the settings of a policy, whose keys and values are each right, against one another."""
    own = (MATCH.name, AUTO_CREATE.name)
    try:
        given = normalise({key: plain(entry.value) for key, entry in entries.items() if key not in own})
    except SettingError as error:
        problems.append(entries[error.names[0]].place.problem(error.reason))
        return ()
    for found in contradictions({name: item.value for name, item in given.items()}):
        one, other = (entries[given[name].key].place for name in found.names)
        problems.append(one.problem(f"{found.reason} (line {other.line})"))
    return tuple(
        Setting(name, item.value, str(entries[item.key].place))
        for name, item in given.items()
        if item.value != SUBSCRIPTION or name != "kind"
    )
