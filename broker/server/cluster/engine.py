"""The log's servers, as a member's settings name them: the way there, and whether they sync each record."""

from __future__ import annotations

import json
import logging
import ssl
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from broker.cluster.jetstream import LogServers, unsynced
from broker.cluster.nats import NatsLogin
from broker.config.cluster import Cluster
from broker.errors import OperatorError

log = logging.getLogger("sluice.cluster")

# Of a server's monitoring: how long it may take, and how much it may say.
MONITOR_S = 5.0
MOST_MONITOR_BYTES = 1 << 20


def timeout_s(cluster: Cluster) -> float:
    """Return how long the log's servers may take to answer: well within an owner's lease."""
    return cluster.ttl_ms / 3000


def engine_of(cluster: Cluster) -> LogServers:
    """Return how this member reaches the log's servers. Raises OperatorError where a file can't be read."""
    login = NatsLogin()
    if cluster.engine_password_file is not None:
        login = NatsLogin(user=cluster.engine_user, password=first_line(cluster.engine_password_file))
    elif cluster.engine_token_file is not None:
        login = NatsLogin(token=first_line(cluster.engine_token_file))
    wants_tls = cluster.engine_tls_ca is not None or any(each.secure for each in cluster.engine)

    def context() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=cluster.engine_tls_ca)

    urls = tuple(map(str, cluster.engine))
    return LogServers(urls, timeout_s(cluster), login, context if wants_tls else None)


def first_line(path: Path) -> str:
    """Return the first line of a file that has a secret. Raises OperatorError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise OperatorError(f"{path}: can't be read: {fault}") from fault
    if not lines or not lines[0].strip():
        raise OperatorError(f"{path}: its first line is empty")
    return lines[0].strip()


def warn_of_unsynced(monitors: Sequence[str]) -> None:
    """Warn of servers of the log that acknowledge what isn't on disk yet, as their monitoring pages say."""
    for url in monitors:
        try:
            with urllib.request.urlopen(f"{url}/jsz?config=1", timeout=MONITOR_S) as answer:  # noqa: S310
                found = json.loads(answer.read(MOST_MONITOR_BYTES))
        except (OSError, ValueError) as fault:
            log.warning("%s: whether it syncs each record can't be seen: %s", url, fault)
            continue
        for text in unsynced([found]):
            log.warning("%s: %s", url, text)
