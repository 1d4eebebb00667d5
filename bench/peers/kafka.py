"""Apache Kafka by Maven: one server of its own quorum, and its connector for Spark."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contenders import BenchError, free_port
from bench.peers import maven
from bench.peers.peer import java

GROUP, VERSION = "org.apache.kafka", "4.1.0"
# The newest connector that there is; Spark's own version may be ahead of it.
CONNECTOR = "4.2.0"
START_S = 60.0
STOP_S = 15.0
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def server() -> Path:
    """Return the folder of the server's jars. Raises MissingError."""
    java()
    return maven.jars(f"kafka-{VERSION}", f"{GROUP}:kafka_2.13:{VERSION}", f"{GROUP}:kafka-tools:{VERSION}")


def connector() -> Path:
    """Return the folder of the jars that Spark needs to read Kafka. Raises MissingError."""
    wanted = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}"
    left_out = ("org.apache.hadoop", "org.scala-lang", "org.slf4j", "com.google.code.findbugs")
    return maven.jars(f"spark-kafka-{CONNECTOR}", wanted, without=left_out)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Run a server while the block does; yield its address. Raises BenchError with its last words."""
    jars = server()
    port, controller = free_port(), free_port()
    properties = folder / "server.properties"
    properties.write_text(PROPERTIES.format(port=port, controller=controller, folder=folder))
    run(
        jars,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        "AAAAAAAAAAAAAAAAAAAAAA",
        "-c",
        str(properties),
        "--standalone",
    )
    log = folder / "server.log"
    command = ["java", "-Xmx1g", "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            _await(process, port, log)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def create(address: str, topic: str, partitions: int) -> None:
    """Make a topic."""
    words = ["--create", "--bootstrap-server", address, "--topic", topic, "--partitions", str(partitions)]
    run(server(), "org.apache.kafka.tools.TopicCommand", *words)


def run(jars: Path, main: str, *words: str) -> None:
    """Run one of Kafka's programs to its end. Raises BenchError."""
    command = ["java", "-cp", f"{jars}/*", main, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode:
        raise BenchError(f"{main}: {(ended.stdout + ended.stderr).strip()[-400:]}")


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip()[-600:]
                raise BenchError(f"Kafka did not start: {said}") from None
            time.sleep(0.2)
