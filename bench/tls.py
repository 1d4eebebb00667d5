"""What TLS takes of the plain path: ``python -m bench.tls [--rounds 6] [--scram]``.

One broker with a listener of either kind, loaded by turns, so that what drifts on a shared machine drifts for
both; medians, and the ratio of TLS to plain. With ``--scram`` both ask for SCRAM-SHA-256 first, which is over
before the first message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from broker.security.devcerts import write_all

SIZES = (100, 1024)
SLUICE = (sys.executable, "-m", "broker.cli.main")
CONFIG = """
listeners: ["amqp://127.0.0.1:0", "amqps://127.0.0.1:0"]
http: 127.0.0.1:0
events: {{enabled: false}}
log_level: warning
tls: {{certificate: {folder}/server.pem, key: {folder}/server-key.pem, min_version: "{version}"}}
{security}
"""


@contextmanager
def started(folder: Path, version: str, password: str) -> Iterator[dict[str, str]]:
    """A broker, and its URL by scheme."""
    write_all(folder, ["localhost", "127.0.0.1"], "bench")
    security = ""
    if password:
        users = folder / "users.yaml"
        add = ("users", "add", "bench", "--file", str(users), "--password-file", "-")
        subprocess.run([*SLUICE, *add], input=password, text=True, check=True, timeout=60)
        security = f"security: {{users: {users}}}"
    config = folder / "broker.yaml"
    config.write_text(CONFIG.format(folder=folder, version=version, security=security))
    (folder / "none.yaml").write_text("policies: []\n")
    words = ("serve", "--config", str(config), "--policies", str(folder / "none.yaml"))
    process = subprocess.Popen(
        [*SLUICE, *words, "--data", str(folder / "data")], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    urls: dict[str, str] = {}
    for line in process.stderr:
        found = re.search(r"listening (amqps?)://\S+:(\d+)", line)
        if found:
            who = f"bench:{password}@" if password else ""
            urls[found[1]] = f"{found[1]}://{who}127.0.0.1:{found[2]}"
        if line.endswith("ready\n"):
            break
    try:
        yield urls | {"pid": str(process.pid)}
    finally:
        process.terminate()
        process.wait(20)


def loaded(url: str, pid: str, body: int, seconds: float, ca: Path) -> tuple[float, float, float]:
    """Messages a second, and processor time a message in microseconds: the broker's and the generator's."""
    words = ("bench", "-b", url, "--pid", pid, "--body", str(body), "--seconds", str(seconds))
    done = subprocess.run(
        [*SLUICE, *words, "--warmup", "0.5", "--json", f"b{body}"],
        env=os.environ | {"SLUICE_CA": str(ca)},
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 60,
    )
    told = json.loads(done.stdout)
    return float(told["out_s"]), float(told["broker_cpu_us"]), told["load_cpu_s"] / told["received"] * 1e6


def main() -> None:
    """Print a table: medians of plain and TLS, and what is left of plain."""
    parser = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--min-version", choices=("1.2", "1.3"), default="1.2")
    parser.add_argument("--scram", action="store_true", help="with a user and a password")
    args = parser.parse_args()
    print("| body | plain msg/s | TLS msg/s | of plain | broker µs/msg | generator µs/msg |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(folder, args.min_version, "secret" if args.scram else "") as broker:
            for body in SIZES:
                rounds = [
                    [
                        loaded(broker[scheme], broker["pid"], body, args.seconds, folder / "ca.pem")
                        for scheme in ("amqp", "amqps")
                    ]
                    for _ in range(args.rounds)
                ]
                plain, tls = (
                    [median(each[which][column] for each in rounds) for column in range(3)]
                    for which in (0, 1)
                )
                print(
                    f"| {body} B | {plain[0]:,.0f} | {tls[0]:,.0f} | {tls[0] / plain[0]:.0%} "
                    f"| {plain[1]:.2f}, {tls[1]:.2f} | {plain[2]:.2f}, {tls[2]:.2f} |"
                )


if __name__ == "__main__":
    main()
