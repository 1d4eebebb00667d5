"""A pair of Artemis that replicates its journal: what ``artemis create --replicated`` writes, twice."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.contenders import BenchError, free_port
from bench.peers.artemis import CATCH_ALL, CREATE_S, LIMITS, Artemis, told_of
from bench.peers.peer import Launch, MissingError

# What the backup writes once it has everything.
SYNCHRONIZED = "AMQ221024"
SYNC_S = 60.0
USER = "bench"


class ArtemisPair(Artemis):
    """Clients talk to the primary."""

    title = "Artemis, pair"
    syncs = (
        "A durable message is settled once the primary's journal is synced and its backup has answered that "
        "it has the record (Artemis documentation, High Availability, Replication)."
    )

    def prepare(self, folder: Path, port: int) -> Launch:
        core = [port, free_port()]
        backup = folder / "backup"
        for at, instance in enumerate((folder / "instance", backup)):
            self._create(instance, core[at], core[1 - at], is_backup=bool(at))
        config = folder / "instance" / "etc" / "broker.xml"
        self.settings = (
            "`artemis create --replicated`, primary and backup on loopback, with a static connector",
            *told_of(config.read_text(), (folder / "instance" / "etc" / "artemis.profile").read_text()),
        )

        def then() -> None:
            _synchronized(backup / "log" / "artemis.log")

        return Launch(
            [str(folder / "instance" / "bin" / "artemis"), "run"],
            beside=[[str(backup / "bin" / "artemis"), "run"]],
            then=then,
        )

    def _create(self, instance: Path, port: int, other: int, *, is_backup: bool) -> None:
        words = [str(self._home() / "bin" / "artemis"), "create", "--silent", "--allow-anonymous", "--no-web"]
        words += ["--user", USER, "--password", USER, "--host", "127.0.0.1", "--default-port", str(port)]
        words += ["--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor"]
        words += ["--replicated", "--failover-on-shutdown", "--clustered", "--cluster-user", USER]
        words += ["--cluster-password", USER, "--staticCluster", f"tcp://127.0.0.1:{other}"]
        words += [*(["--backup"] if is_backup else []), str(instance)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=CREATE_S, check=False)
        if ended.returncode or not (instance / "etc" / "broker.xml").exists():
            raise MissingError(f"artemis create: {(ended.stdout + ended.stderr).strip()[-200:]}")
        config = instance / "etc" / "broker.xml"
        config.write_text(CATCH_ALL.sub(LIMITS, config.read_text()))


def _synchronized(log: Path) -> None:
    """Wait until the backup's log says that it has everything. Raises BenchError."""
    deadline = time.monotonic() + SYNC_S
    while True:
        text = log.read_text(errors="replace") if log.exists() else ""
        if SYNCHRONIZED in text:
            return
        if time.monotonic() > deadline:
            raise BenchError(f"the backup isn't synchronized after {SYNC_S:g} s: {text[-400:]}")
        time.sleep(0.2)
