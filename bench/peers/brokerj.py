"""Apache Qpid Broker-J by Maven."""

from __future__ import annotations

import json
from pathlib import Path

from bench.peers import maven
from bench.peers.peer import LIMIT_MSGS, LIMITED, Launch, java

VERSION = "9.2.0"
ALIASES = ("nameAlias", "defaultAlias", "hostnameAlias")


class BrokerJ:
    """A virtual host with Berkeley DB, whose queues are made on first use."""

    title = "Broker-J"
    limit = (
        f"`maximumQueueDepthMessages: {LIMIT_MSGS}`, `overflowPolicy: PRODUCER_FLOW_CONTROL`: producers are "
        "stopped once the queue is overfull; what was granted before still comes in."
    )
    syncs = (
        "A persistent message is settled after its transaction in the BDB store is committed; the book names "
        "no setting for how it is synced, so see the disk's flushes in the table."
    )
    commit_sync = "BDB log flushed, commits coalesced"
    settings = (
        "the distribution's start script: `-Xmx512m -XX:MaxDirectMemorySize=1536m`, G1",
        "virtual host of type BDB; anonymous; no HTTP management; log at WARN",
        "queues by `nodeAutoCreationPolicies`, durable",
    )

    def find(self) -> str:
        running_on = java()
        self._home()
        return f"{VERSION}, {running_on}"

    def _home(self) -> Path:
        folder = maven.distribution("org.apache.qpid", "apache-qpid-broker-j", VERSION)
        return maven.beneath(folder, "bin/qpid-server")

    def prepare(self, folder: Path, port: int) -> Launch:
        config = folder / "initial-config.json"
        config.write_text(json.dumps(_config(port), indent=1))
        words = [str(self._home() / "bin" / "qpid-server"), "-icp", str(config)]
        return Launch(["/bin/bash", *words], {"QPID_WORK": str(folder), "QPID_HOME": str(self._home())})

    def address(self, queue: str) -> str:
        return queue

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"


def _config(port: int) -> dict[str, object]:
    limited = {"maximumQueueDepthMessages": LIMIT_MSGS, "overflowPolicy": "PRODUCER_FLOW_CONTROL"}
    host = {
        "type": "BDB",
        "nodeAutoCreationPolicies": [
            _made(LIMITED.replace(".", "[.]") + ".*", limited | {"durable": True}),
            _made(".*", {"durable": True}),
        ],
    }
    rule = {"name": "Root", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"}
    return {
        "name": "peer",
        "modelVersion": "8.0",
        "authenticationproviders": [{"name": "anyone", "type": "Anonymous"}],
        "brokerloggers": [{"name": "out", "type": "Console", "brokerloginclusionrules": [rule]}],
        "ports": [
            {
                "name": "AMQP",
                "port": str(port),
                "bindingAddress": "127.0.0.1",
                "authenticationProvider": "anyone",
                # As in the distribution's own: a client names the host it connects to.
                "virtualhostaliases": [{"name": kind, "type": kind} for kind in ALIASES],
            }
        ],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }


def _made(pattern: str, attributes: dict[str, object]) -> dict[str, object]:
    return {
        "pattern": pattern,
        "createdOnPublish": "true",
        "createdOnConsume": "true",
        "nodeType": "queue",
        "attributes": attributes,
    }
