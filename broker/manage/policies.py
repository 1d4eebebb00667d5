"""The policies that hold, as they are shown: every setting with its place in a file."""

from __future__ import annotations

from dataclasses import dataclass

from broker.policy.effective import Policy, PolicySet


@dataclass(frozen=True, slots=True)
class PolicyView:
    """One policy; ``auto_create`` is None where it says nothing of it. Most specific patterns come first."""

    name: str
    match: str
    of_subscriptions: bool
    origin: str
    file: str
    line: int
    auto_create: bool | None
    settings: tuple[dict[str, object], ...]


def policy_views(policies: PolicySet) -> list[PolicyView]:
    """All of them."""
    return [_view(policy) for policy in policies.policies]


def _view(policy: Policy) -> PolicyView:
    text = policy.pattern.text
    given: list[dict[str, object]]
    given = [{"name": each.name, "value": each.value, "origin": each.origin} for each in policy.settings]
    return PolicyView(
        name=f"{text} (subscriptions)" if policy.of_subscriptions else text,
        match=text,
        of_subscriptions=policy.of_subscriptions,
        origin=str(policy.place),
        file=policy.place.file,
        line=policy.place.line,
        auto_create=policy.auto_create,
        settings=tuple(given),
    )
