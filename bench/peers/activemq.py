"""ActiveMQ Classic by Maven: Debian's package is built without AMQP."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from bench.peers import maven
from bench.peers.peer import LIMITED, Launch, MissingError, java

VERSION = "5.18.3"
# 1,000 messages of 100 bytes: each counts as 1,024 bytes and what is in it (Message.getSize), 1,128 in all.
LIMIT_BYTES = 1_128_000
CONNECTORS = re.compile(r"<transportConnectors>.*</transportConnectors>", re.DOTALL)
CONSOLE = re.compile(r'<import resource="jetty.xml"/>')
SHUTDOWN = re.compile(r"<shutdownHooks>.*</shutdownHooks>", re.DOTALL)
ENTRY = f"""<policyEntries>
                <policyEntry queue="{LIMITED}>" producerFlowControl="true" memoryLimit="{LIMIT_BYTES}">
                  <pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>
                </policyEntry>"""


class ActiveMQ:
    """The distribution's activemq.xml with AMQP alone and without its web console."""

    title = "ActiveMQ Classic"
    limit = (
        f"none in messages: `memoryLimit` {LIMIT_BYTES:,} bytes, room for about 1,000 of these messages as "
        "it counts them, with `producerFlowControl` and the `vmQueueCursor` its documentation names for it."
    )
    syncs = (
        "KahaDB, `journalDiskSyncStrategy: always` by default: a persistent message is settled after its "
        "sync; `concurrentStoreAndDispatchQueues` is true by default, so one that is consumed at once may "
        "never be written (ActiveMQ documentation, KahaDB)."
    )
    commit_sync = "KahaDB `journalDiskSyncStrategy`: always"
    settings = (
        "the distribution's `activemq.xml` and heap (`-Xms64M -Xmx1G`), KahaDB, "
        "`memoryUsage` 70 % of the heap, which bounds what isn't durable",
        "web console and the other protocols off",
    )

    def find(self) -> str:
        running_on = java()
        self._home()
        return f"{VERSION}, {running_on}"

    def _home(self) -> Path:
        folder = maven.distribution("org.apache.activemq", "apache-activemq", VERSION)
        return maven.beneath(folder, "bin/activemq.jar")

    def prepare(self, folder: Path, port: int) -> Launch:
        home = self._home()
        conf = folder / "conf"
        shutil.copytree(home / "conf", conf)
        config = conf / "activemq.xml"
        config.write_text(configured(config.read_text(), port))
        env = {
            "ACTIVEMQ_HOME": str(home),
            "ACTIVEMQ_BASE": str(folder),
            "ACTIVEMQ_CONF": str(conf),
            "ACTIVEMQ_DATA": str(folder / "data"),
            "ACTIVEMQ_TMP": str(folder / "tmp"),
        }
        for name in ("data", "tmp"):
            (folder / name).mkdir()
        return Launch(["/bin/sh", str(home / "bin" / "activemq"), "console"], env)

    def address(self, queue: str) -> str:
        return queue

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"


def configured(text: str, port: int) -> str:
    """The distribution's activemq.xml with AMQP alone, on ``port``, and the limited queues."""
    amqp = re.search(r'<transportConnector name="amqp"[^>]*/>', text)
    if amqp is None or "<policyEntries>" not in text:
        raise MissingError("the distribution's activemq.xml has another shape")
    only = amqp.group().replace("0.0.0.0:5672", f"127.0.0.1:{port}")
    text = CONNECTORS.sub(f"<transportConnectors>{only}</transportConnectors>".replace("\\", r"\\"), text)
    return CONSOLE.sub("", SHUTDOWN.sub("", text)).replace("<policyEntries>", ENTRY)
