"""RabbitMQ from the system's package, with its AMQP 1.0 plugin."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

from bench.contenders import free_port
from bench.peers.peer import LIMIT_MSGS, LIMITED, Launch, MissingError, said, version_of

BIN = Path("/usr/lib/rabbitmq/bin")
SALT = b"salt"
OTP = "io:format(erlang:system_info(otp_release)), halt()."


class RabbitMQ:
    """Classic queues, as the AMQP 1.0 plugin declares them."""

    title = "RabbitMQ"
    limit = (
        f"policy `max-length: {LIMIT_MSGS}`, `overflow: reject-publish`: what comes beyond isn't queued. "
        "Producers keep their credit and, with AMQP 1.0 in this version, got no outcome for it (the table "
        "counts them as never answered); pre-settled it is dropped."
    )
    syncs = (
        "A persistent message on a durable classic queue is confirmed once it is on disk; syncs are batched "
        "at intervals of up to some hundred milliseconds or when the queue is idle, and a message consumed "
        'and acknowledged before is confirmed without one (rabbitmq.com/confirms.html, "When Will Published '
        'Messages Be Confirmed").'
    )
    commit_sync = ""  # its plugin answers no declare
    settings = (
        "package's defaults (`vm_memory_high_watermark` 0.4, schedulers one a core, classic queues)",
        "plugin `rabbitmq_amqp1_0`; durable queues at `/queue/NAME`",
    )

    def find(self) -> str:
        if not (BIN / "rabbitmq-server").exists():
            raise MissingError("Debian's package rabbitmq-server is not installed")
        version = version_of(said("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"))
        return f"{version} (Debian), Erlang/OTP {said('erl', '-noshell', '-eval', OTP).strip()}"

    def prepare(self, folder: Path, port: int) -> Launch:
        (folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (folder / "definitions.json").write_text(json.dumps(_definitions()))
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{port}\nload_definitions = {folder}/definitions.json\n"
        )
        epmd = str(free_port())
        env = {
            "ERL_EPMD_PORT": epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"peer{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
        }
        return Launch([str(BIN / "rabbitmq-server")], env, [["epmd", "-port", epmd, "-address", "127.0.0.1"]])

    def address(self, queue: str) -> str:
        return f"/queue/{queue}"

    def url(self, port: int) -> str:
        return f"amqp://guest:guest@127.0.0.1:{port}"


def _definitions() -> dict[str, object]:
    """The limit's policy; and the default user, who isn't made where definitions are loaded."""
    digest = SALT + hashlib.sha256(SALT + b"guest").digest()
    user = {
        "name": "guest",
        "password_hash": base64.b64encode(digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "administrator",
    }
    policy = {
        "vhost": "/",
        "name": "limited",
        "pattern": "^" + LIMITED.replace(".", "[.]"),
        "apply-to": "queues",
        "definition": {"max-length": LIMIT_MSGS, "overflow": "reject-publish"},
    }
    allowed = {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return {"vhosts": [{"name": "/"}], "users": [user], "permissions": [allowed], "policies": [policy]}
