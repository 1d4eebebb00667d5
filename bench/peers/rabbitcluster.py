"""Three nodes of RabbitMQ in one Erlang cluster on loopback, and quorum queues, which all three keep."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import BenchError, free_port
from bench.peers.peer import Launch
from bench.peers.rabbitmq import BIN, RabbitMQ

NODES = 3
JOIN_S = 90.0
CALL_S = 60.0


class RabbitCluster(RabbitMQ):
    """Clients talk to the node that leads every queue."""

    title = "RabbitMQ, 3 nodes"
    syncs = (
        "A quorum queue confirms a message once a majority of its members has it in a synced log "
        "(rabbitmq.com/quorum-queues.html)."
    )

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues

    @property
    def settings(self) -> Sequence[str]:  # type: ignore[override]
        """How it is set up."""
        return (
            "three nodes on loopback in one cluster, package's defaults",
            "queues of `x-queue-type: quorum` at `/amq/queue/NAME`, plugin `rabbitmq_amqp1_0`",
        )

    def prepare(self, folder: Path, port: int) -> Launch:
        cookie = folder / ".erlang.cookie"
        cookie.write_text("SLUICEBENCH")
        cookie.chmod(0o400)
        (folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (folder / "definitions.json").write_text(
            json.dumps({"queues": [_quorum(name) for name in self._queues]})
        )
        names = [f"peer{port}n{at}@localhost" for at in range(NODES)]
        epmd = str(free_port())
        common = {
            "ERL_EPMD_PORT": epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
        }
        envs = [
            _node(folder, at, name, port if not at else free_port(), names) for at, name in enumerate(names)
        ]
        command = [str(BIN / "rabbitmq-server")]
        others = [["env", *(f"{key}={value}" for key, value in env.items()), *command] for env in envs[1:]]

        def then() -> None:
            _join(names, os.environ | common | envs[0] | {"HOME": str(folder)}, folder / "definitions.json")

        beside = [["epmd", "-port", epmd, "-address", "127.0.0.1"], *others]
        return Launch(command, common | envs[0], beside, then)

    def address(self, queue: str) -> str:
        return f"/amq/queue/{queue}"


def _node(folder: Path, at: int, name: str, port: int, names: Sequence[str]) -> dict[str, str]:
    """Write one node's configuration; return its environment."""
    home = folder / f"node-{at}"
    home.mkdir()
    joined = "".join(
        f"cluster_formation.classic_config.nodes.{number + 1} = {each}\n" for number, each in enumerate(names)
    )
    (home / "rabbitmq.conf").write_text(
        f"listeners.tcp.local = 127.0.0.1:{port}\n"
        "cluster_formation.peer_discovery_backend = classic_config\n"
        f"cluster_formation.randomized_startup_delay_range.min = 0\n"
        f"cluster_formation.randomized_startup_delay_range.max = 1\n{joined}"
    )
    return {
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
    }


def _join(names: Sequence[str], env: dict[str, str], definitions: Path) -> None:
    """Wait until every node is in the first one's cluster, then declare the queues. Raises BenchError."""
    deadline = time.monotonic() + JOIN_S
    while True:
        status = _ctl(names[0], env, "cluster_status", "--formatter", "json")
        running = json.loads(status).get("running_nodes", []) if status.startswith("{") else []
        if set(names) <= set(running):
            break
        if time.monotonic() > deadline:
            raise BenchError(
                f"{len(running)} of {len(names)} nodes in the cluster after {JOIN_S:g} s: {status[-200:]}"
            )
        time.sleep(0.5)
    told = _ctl(names[0], env, "import_definitions", str(definitions))
    queues = _ctl(names[0], env, "list_queues", "name", "type", "leader", "members", "--formatter", "json")
    try:
        found = json.loads(queues)
    except ValueError as error:
        raise BenchError(f"no queues: {told[-200:]} {queues[-200:]}") from error
    if not found or any(each["type"] != "quorum" or len(each["members"]) < len(names) for each in found):
        raise BenchError(f"the queues aren't kept by every node: {queues[-300:]}")


def _ctl(node: str, env: dict[str, str], *words: str) -> str:
    command = [str(BIN / "rabbitmqctl"), "-q", "-n", node, *words]
    try:
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=CALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"rabbitmqctl {words[0]} did not answer") from error
    return ended.stdout.strip() or ended.stderr.strip()


def _quorum(name: str) -> dict[str, object]:
    return {
        "name": name,
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "arguments": {"x-queue-type": "quorum"},
    }
