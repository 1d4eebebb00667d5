"""Whose a durable subscription is doesn't change with a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.manage.subscriptions import SubscriptionKey
from tests.store.test_set_aside import NAME, QUEUE, TOPIC, bodies, open_log, started

WANTED = SubscriptionKey("news", "reader", "d", lasts=True, durable=True, stays=True, user="alice")


def test_a_durable_subscription_is_its_users_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    open_log(data, "good", QUEUE, "here")
    open_log(data, "news", TOPIC)
    open_log(data, NAME, WANTED.encode(), "hers")
    with started(data) as model:
        other = replace(WANTED, user="mallory")
        # By the same container's and link's name.
        assert model.subscriptions.find("reader", "d", "mallory") is None
        assert model.subscriptions.join(other).node.name != NAME
    with started(data, crash=True) as model:
        assert model.subscriptions.join(replace(WANTED, user="mallory")).node.name != NAME
        joined = model.subscriptions.join(WANTED)
        assert (joined.node.name, bodies(model, NAME)) == (NAME, ["hers"])
