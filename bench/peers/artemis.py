"""ActiveMQ Artemis by Maven, in an instance its own ``create`` makes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bench.peers import maven
from bench.peers.peer import LIMIT_MSGS, LIMITED, Launch, MissingError, java

VERSION = "2.40.0"
CREATE_S = 120.0
ACCEPTOR = re.compile(r"<acceptors>.*</acceptors>", re.DOTALL)
LIMITS = f"""<address-setting match="{LIMITED}#">
            <max-size-messages>{LIMIT_MSGS}</max-size-messages>
            <address-full-policy>BLOCK</address-full-policy>
            <default-address-routing-type>ANYCAST</default-address-routing-type>
            <default-queue-routing-type>ANYCAST</default-queue-routing-type>
         </address-setting>
         <!--default for catch all-->
         <address-setting match="#">
            <default-address-routing-type>ANYCAST</default-address-routing-type>
            <default-queue-routing-type>ANYCAST</default-queue-routing-type>"""
CATCH_ALL = re.compile(r'<!--default for catch all-->\s*<address-setting match="#">')


class Artemis:
    """What ``artemis create`` writes, with queues by default (ANYCAST) and one acceptor."""

    title = "Artemis"
    limit = (
        f"`max-size-messages: {LIMIT_MSGS}`, `address-full-policy: BLOCK`: no new credit beyond; what was "
        "granted before (`amqpCredits` 1000 a link) still comes in."
    )
    syncs = (
        "Durable messages are settled after the journal is synced: `journal-sync-non-transactional` and "
        "`journal-datasync` are true by default; writes within `journal-buffer-timeout` share one "
        "(Artemis documentation, Persistence)."
    )
    commit_sync = "`journal-sync-transactional`, `journal-datasync`: true"

    def __init__(self) -> None:
        self.settings: tuple[str, ...] = ()

    def find(self) -> str:
        running_on = java()
        self._home()
        return f"{VERSION}, {running_on}"

    def _home(self) -> Path:
        folder = maven.distribution("org.apache.activemq", "apache-artemis", VERSION)
        return maven.beneath(folder, "bin/artemis")

    def prepare(self, folder: Path, port: int) -> Launch:
        instance = folder / "instance"
        words = [str(self._home() / "bin" / "artemis"), "create", "--silent", "--allow-anonymous", "--no-web"]
        words += ["--user", "bench", "--password", "bench", "--host", "127.0.0.1", str(instance)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=CREATE_S, check=False)
        config = instance / "etc" / "broker.xml"
        if ended.returncode or not config.exists():
            raise MissingError(f"artemis create: {(ended.stdout + ended.stderr).strip()[-200:]}")
        text = config.read_text()
        self.settings = (*told_of(text, (instance / "etc" / "artemis.profile").read_text()),)
        config.write_text(configured(text, port))
        return Launch([str(instance / "bin" / "artemis"), "run"])

    def address(self, queue: str) -> str:
        return queue

    def url(self, port: int) -> str:
        return f"amqp://127.0.0.1:{port}"


def configured(text: str, port: int) -> str:
    """The instance's broker.xml with AMQP alone, on ``port``, and the limited queues."""
    amqp = re.search(r'<acceptor name="amqp">[^<]*</acceptor>', text)
    if amqp is None or not CATCH_ALL.search(text):
        raise MissingError("artemis create wrote a broker.xml of another shape")
    acceptor = amqp.group().replace(":5672?", f":{port}?")
    return CATCH_ALL.sub(LIMITS, ACCEPTOR.sub(f"<acceptors>{acceptor}</acceptors>", text))


def told_of(config: str, profile: str) -> list[str]:
    """What ``create`` chose for this machine."""
    heap = " ".join(re.findall(r"-Xm[sx]\w+", profile))
    found = [f"as `artemis create` makes it: heap `{heap}`"]
    for name in ("journal-type", "journal-datasync", "journal-buffer-timeout"):
        value = re.search(f"<{name}>([^<]*)<", config)
        if value:
            found.append(f"`{name}` {value.group(1)}")
    return [*found, "`global-max-size` half the heap, then paging", "ANYCAST by default"]
