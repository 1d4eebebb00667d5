"""The applications that docs/clients.md shows in Node, Java and Spring, as they stand, over restarts too."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.clients.conftest import Clients
from tests.clients.programs import BY_NAME, SPRING
from tests.clients.running import Running
from tests.docs.pages import ROOT, applications
from tests.wire.conftest import RunningBroker, in_one_cell, wait_until
from tests.wire.seeing import number_of

pytestmark = pytest.mark.clients

PROGRAMS = applications(ROOT / "docs" / "clients.md")
POLICIES = "policies:\n  - {match: '*', durable: true}\n"


def node(clients: Clients, folder: Path, port: int) -> Running:
    """`orders.js`, where rhea is to be found."""
    program = clients.built(BY_NAME["rhea"])
    (folder / "orders.js").write_text(PROGRAMS["orders.js"])
    (folder / "node_modules").symlink_to(program.path / "node_modules")
    return Running(folder, "node", "orders.js", str(port))


def java(clients: Clients, folder: Path, port: int) -> Running:
    """`Orders.java`, compiled as it starts, beside Qpid JMS."""
    program = clients.built(BY_NAME["qpid-jms"])
    (folder / "Orders.java").write_text(PROGRAMS["Orders.java"])
    jar = str(program.path / "target" / "jms-client.jar")
    return Running(folder, "java", "-cp", jar, "Orders.java", str(port))


def spring(clients: Clients, folder: Path, port: int) -> Running:
    """`OrdersApplication.java` with its `application.properties`, compiled first; its log is off."""
    lib = clients.built(SPRING).path / "target" / "lib"
    (folder / "OrdersApplication.java").write_text(PROGRAMS["OrdersApplication.java"])
    properties = PROGRAMS["application.properties"].replace("5672", str(port))
    (folder / "application.properties").write_text(f"{properties}logging.level.root=OFF\n")
    path = f"{folder}/classes:{lib}/*"
    subprocess.run(
        ["javac", "-parameters", "-d", "classes", "-cp", f"{lib}/*", "OrdersApplication.java"],
        cwd=folder,
        check=True,
    )
    return Running(folder, "java", "-cp", path, "orders.OrdersApplication", "--spring.main.banner-mode=off")


@contextmanager
def broker_at(folder: Path, *words: str) -> Iterator[RunningBroker]:
    running = RunningBroker(folder, "", POLICIES + in_one_cell("#"), words)
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("start", [node, java, spring])
def test_an_application_goes_on_after_a_restart_and_leaves_what_fails(
    clients: Clients,
    tmp_path: Path,
    start: Callable[[Clients, Path, int], Running],
    end: signal.Signals,
) -> None:
    with broker_at(tmp_path / "broker") as broker:
        application = start(clients, tmp_path, broker.port)
        try:
            wait_until(lambda: len(application.lines) > 20, 60, "orders")
            send(broker.url, "bad")
            wait_until(lambda: number_of(broker, "DLQ", "depth_msgs") == 1, 30, "a dead letter")
            broker.signal(end)
            broker.stop()
            before = len(application.lines)
            with broker_at(tmp_path / "broker", "--listen", f"amqp://127.0.0.1:{broker.port}") as again:
                wait_until(lambda: len(application.lines) > before + 50, 60, "more orders")
                send(again.url, "bad")
                wait_until(lambda: number_of(again, "DLQ", "depth_msgs") == 2, 30, "another dead letter")
                assert application.process.poll() is None
                assert "bad" not in application.lines
        finally:
            application.stop()


def send(url: str, body: str) -> None:
    connection = BlockingConnection(url, timeout=30)
    connection.create_sender("orders").send(Message(body, durable=True))
    connection.close()
