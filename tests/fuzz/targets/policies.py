"""A file of policies: all that is wrong is said with its place, and what holds says the same when said
again."""

from __future__ import annotations

from dataclasses import fields, replace

from broker.config.node import FIELDS, NodeSettings, SettingError
from broker.config.policies import PolicySet
from broker.config.policy_files import parse_policies
from broker.config.policy_schema import POLICY_FIELDS
from broker.config.synonyms import OF_POLICIES
from broker.errors import ConfigError
from tests.fuzz.target import Target, expect

ADDRESSES = ("orders", "orders.eu", "a.b.c", "x")
YAML = b"""policies: ~- match: ~kind: queue~kind: topic~kind: subscription~durable: true~10 MB~50%
~3s~{}~[]~&a ~*a ~<<: *a
~!!python/object/apply:os.system ~!!binary ~? ~: ~# ~%YAML 1.1~---~...~\n  - ~|\n    ~orders ~"orders.>"
~'*.eu'~ring~reject~block~page~dead_letter~always~fair~adaptive~strict~0x10~1e3~0o7"""
WORDS = (*YAML.split(b"~"), *(f"{name}: ".encode() for name in POLICY_FIELDS))


def check(data: bytes) -> None:
    try:
        found = parse_policies(data, "policies.yaml")
    except ConfigError as refusal:
        lines = (
            data.count(b"\n")
            + data.count(b"\r")
            + data.count("\u2028".encode())
            + data.count("\u0085".encode())
            + 2
        )
        for problem in refusal.problems:
            expect(problem.file == "policies.yaml", "a problem of another file", problem)
            expect(
                0 <= problem.line <= lines + data.count("\u2029".encode()), "a line that isn't there", problem
            )
            expect(bool(problem.text), "a problem without a word")
        return
    literal = [each.pattern.text for each in found.policies if each.pattern.literal]
    for address in (*ADDRESSES, *literal[:4]):
        _explained(found, address)


def _explained(policies: PolicySet, address: str) -> None:
    """What holds for an address, made into arguments of a node, holds there without any policy."""
    try:
        held = policies.effective(address)
        policies.of_subscription(address, "client.link")
    except SettingError as refusal:
        expect(address in refusal.reason or refusal.reason != "", "a contradiction without a word")
        return
    settings = held.settings
    expect(
        set(held.origins) == {each.name for each in fields(NodeSettings)} | {"auto_create"},
        "origins",
        held.origins,
    )
    stop, resume, most = settings.flow_stop_count, settings.flow_resume_count, settings.max_count
    expect(stop == 0 or (0 < resume <= stop and (most == 0 or stop <= most)), "thresholds", settings)
    stop, resume, most = settings.flow_stop_size, settings.flow_resume_size, settings.max_size
    expect(stop == 0 or (0 < resume <= stop and (most == 0 or stop <= most)), "thresholds", settings)
    if any(each.pattern.literal or each.pattern.matches(address) for each in policies.policies):
        again = PolicySet().effective(address, _said_again(settings)).settings
        kept = {name: getattr(settings, name) for name in OF_POLICIES}
        expect(replace(again, **kept) == settings, "said again it is another", again, settings)


def _said_again(settings: NodeSettings) -> dict[str, object]:
    """The settings of a node as arguments to create it with: all but what only a policy can say."""
    plain = (name for name, row in FIELDS.items() if not row.is_shorthand and name not in OF_POLICIES)
    said: dict[str, object] = {name: getattr(settings, name) for name in plain}
    for shorthand in ("flow_control", "when_full"):
        said[shorthand] = getattr(settings, shorthand)
    if settings.reject_after_ms:
        said["when_full"] = {"reject_after": f"{settings.reject_after_ms}ms"}
    if settings.slow_consumer_rate:
        rate, span_ms = settings.slow_consumer_rate, settings.slow_consumer_for_ms
        said["slow_consumer"] = {"rate": rate, "for": f"{span_ms}ms", "action": settings.slow_consumer_action}
    for name in ("message_ttl", "max_ttl", "expire_after"):
        said[name] = getattr(settings, f"{name}_ms")
    window = {"count": settings.duplicate_window_count, "time": f"{settings.duplicate_window_ms}ms"}
    if not settings.duplicate_window_ms:
        del window["time"]
    return said | {"duplicate_window": window}


TARGET = Target(
    "policies",
    check,
    ("config/policy_files.py", "config/policies.py", "config/patterns.py", "config/yaml.py"),
    WORDS,
)
