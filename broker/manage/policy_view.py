"""The policies that hold, as they are shown: every setting with its place in a file."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.policies import Policy, PolicySet


@dataclass(frozen=True, slots=True)
class PolicyView:
    """One policy; most specific patterns come first.

    There may be thousands, of which a page shows a few: its words are made when they are read.
    """

    policy: Policy

    @property
    def name(self) -> str:
        """The pattern; of one for subscriptions it says so."""
        return f"{self.match} (subscriptions)" if self.of_subscriptions else self.match

    @property
    def match(self) -> str:
        """The pattern."""
        return self.policy.pattern.text

    @property
    def of_subscriptions(self) -> bool:
        """Whether it is about subscriptions."""
        return self.policy.of_subscriptions

    @property
    def origin(self) -> str:
        """File, line and column."""
        return str(self.policy.place)

    @property
    def file(self) -> str:
        """The file it is in."""
        return self.policy.place.file

    @property
    def line(self) -> int:
        """Its line there."""
        return self.policy.place.line

    @property
    def auto_create(self) -> bool | None:
        """None where it says nothing of it."""
        return self.policy.auto_create

    @property
    def settings(self) -> tuple[dict[str, object], ...]:
        """Each with its name, its value and its place."""
        return tuple(
            {"name": each.name, "value": each.value, "origin": each.origin} for each in self.policy.settings
        )


def policy_views(policies: PolicySet) -> list[PolicyView]:
    """All of them."""
    return [PolicyView(policy) for policy in policies.policies]
