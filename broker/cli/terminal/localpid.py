"""Which local process listens on a port, by /proc; None where that can't be told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from broker.client.url import parse

LISTEN = "0A"


def listening_pid(url: str) -> int | None:
    """The process that listens where ``url`` points, if it is on this machine and may be looked at."""
    broker = parse(url)
    if not _is_local(broker.host):
        return None
    sockets = {f"socket:[{inode}]" for inode in _inodes(broker.port)}
    return next(_holders(sockets), None) if sockets else None


def _is_local(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return any(str(entry[4][0]).startswith("127.") or entry[4][0] == "::1" for entry in found)


def _inodes(port: int) -> Iterator[str]:
    """Inodes of the sockets that listen on ``port``; the columns are those of proc(5), net/tcp."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if table.exists():
            for line in table.read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def _holders(sockets: set[str]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(entry.readlink()) in sockets for entry in (process / "fd").iterdir()):
                yield int(process.name)
        except OSError:  # gone meanwhile, or not ours to look at
            continue
