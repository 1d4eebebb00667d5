"""A whole cluster on this machine, for a look at it: ``make cluster``, ended by Ctrl-C.

Three servers of the log and three members, on loopback; their data is in a folder of its own.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.nats import NatsCluster

NAMES = ("a", "b", "c")


def member_settings(name: str, at: int, urls: list[str], folder: Path, base: int = 0) -> str:
    """Return one member's etc/broker.yaml; ``base`` is added to every port."""
    return (
        f"listeners: [amqp://127.0.0.1:{5672 + base + at}]\n"
        f"http: 127.0.0.1:{8672 + base + at}\n"
        f"data: {folder / name}\n"
        "policies: [policies]\n"
        "cluster:\n"
        f"  engine: [{', '.join(urls)}]\n"
        f"  member: {name}\n"
        f"  rank: {at}\n"
        f"  listen: 127.0.0.1:{5680 + base + at}\n"
    )


def main() -> int:
    """Run until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data/cluster"), help="where everything is kept")
    parser.add_argument("--base", type=int, default=0, metavar="N", help="added to every port")
    args = parser.parse_args()
    base: int = args.base
    folder: Path = args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        first = [kind + base + at for at in range(len(NAMES)) for kind in (4222, 6222, 8222)]
        log = NatsCluster(folder / "log", ports=first)
    except FileNotFoundError as fault:
        print(fault, file=sys.stderr)
        return 1
    log.start()
    members = []
    for at, name in enumerate(NAMES):
        settings = folder / f"{name}.yaml"
        settings.write_text(member_settings(name, at, log.urls, folder, base))
        command = [sys.executable, "-m", "broker.cli.main", "serve", "--config", str(settings)]
        members.append(subprocess.Popen(command))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while any(each.poll() is None for each in members):
            time.sleep(0.5)
    except KeyboardInterrupt:
        pass
    finally:
        for each in members:
            each.send_signal(signal.SIGTERM)
        for each in members:
            each.wait(30)
        log.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
