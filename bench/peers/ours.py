"""Ours, started as ``python -m bench`` starts it."""

from __future__ import annotations

import platform
from pathlib import Path

import broker
from bench.peers.peer import LIMIT_MSGS, OURS_TITLE, Launch


class Ours:
    """The broker this is the benchmark of."""

    title = OURS_TITLE
    limit = (
        f"`flow_stop_count: {LIMIT_MSGS}`: producers get no more credit than there is room. Messages "
        "sent on credit taken back meanwhile are parked outside the queue (decisions/credit.md): they count "
        "above as unanswered and, pre-settled, as kept, though the queue itself never "
        "holds more than its limit."
    )
    syncs = (
        "A durable message is accepted after the `fdatasync` of the group it was written in, and so is a "
        "removal settled (decisions/store.md)."
    )
    commit_sync = "`fdatasync` of the commit's group"
    settings = (
        "defaults; metrics, events and flow control on",
        "queues of the durable scenarios `durable: true`, the backlog's `flow_control: false`",
    )

    def find(self) -> str:
        return f"{broker.__version__}, Python {platform.python_version()}"

    def prepare(self, folder: Path, port: int) -> Launch:
        raise NotImplementedError("bench.contenders starts it")

    def address(self, queue: str) -> str:
        return queue

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"
