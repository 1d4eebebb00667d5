"""Apache Qpid's C++ broker, where it is installed."""

from __future__ import annotations

from pathlib import Path

from bench.peers.peer import Launch, said, version_of


class Qpidd:
    """Queues are made by its queue pattern when a link asks for them."""

    title = "qpidd"
    limit = ""  # qpid.flow_stop_count is given where a queue is declared, which this run can't do
    syncs = (
        "The linear store writes with asynchronous direct I/O and settles when the write is done; it calls "
        "no sync."
    )
    commit_sync = "direct I/O, no sync"
    settings = ("defaults, `--auth no`, its own data directory, `--queue-patterns #`",)

    def find(self) -> str:
        return version_of(said("qpidd", "--version"))

    def prepare(self, folder: Path, port: int) -> Launch:
        words = ["qpidd", "--port", str(port), "--interface", "127.0.0.1", "--auth", "no"]
        return Launch([*words, "--data-dir", str(folder / "data"), "--queue-patterns", "#"])

    def address(self, queue: str) -> str:
        return queue

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"
