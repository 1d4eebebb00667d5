"""The Dockerfile's commands, run as they stand; and what they made, started as a container would be."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.packaging.chroot import Chroot
from tests.packaging.clean import ROOT, base_python, checkout, environment
from tests.packaging.dockerfile import Stage, health_command, stages

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]

BUILD, FINAL = stages(ROOT / "Dockerfile")

# What an image of Python on Debian has and this machine may not.
PRELUDE = """
mkdir -p /tmp/commands
ln -s {python} /tmp/commands/python
cat > /tmp/commands/apt-get <<'END'
#!/bin/sh
# Packages are on this machine already, or the image could not be built here.
[ "$1" = install ] || exit 0
shift
for word; do case $word in -*) ;; *) dpkg -s "$word" > /dev/null || exit 1 ;; esac; done
END
chmod +x /tmp/commands/apt-get
# An interpreter in somebody's home is out of other users' reach; here nobody else sees it opened.
for folder in {parents}; do chmod a+x $folder; done
export PATH=/tmp/commands:$PATH PIP_CACHE_DIR=/tmp/cache HOME=/tmp/home
"""

# A container's loopback is its own, so the ports of the Dockerfile are free there.
SERVE = """
cat > /tmp/serve.sh <<'END'
python -c '
import fcntl, socket, struct
with socket.socket() as each:
    fcntl.ioctl(each, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP: netdevice(7)
'
setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all \\
    env -i PATH="$PATH" {command} 2> /tmp/log &
broker=$!
for turn in $(seq 120); do
    {health} > /tmp/health 2>&1 && break
    kill -0 $broker
    sleep 0.5
done
{health}
python -c 'from proton import SSLDomain; SSLDomain(SSLDomain.MODE_CLIENT); print("speaks TLS")'
sluice send q --count 10 --durable --body hello
sluice receive q --count 10
stat --format 'data of %U' /var/lib/sluice/*
kill -TERM $broker
wait $broker
cat /tmp/log
END
unshare --net bash -e /tmp/serve.sh
"""


def steps(stage: Stage) -> str:
    """RUN, COPY, WORKDIR and ENV as a shell knows them; the context is in /tmp/context/files."""
    lines = []
    for word, rest in stage.steps:
        if word == "RUN":
            # A build caches nothing, this test does: else Proton is compiled once more.
            lines.append(f"bash -ec {shlex.quote(rest.replace(' --no-cache-dir', ''))}")
        elif word == "WORKDIR":
            lines.append(f"mkdir -p {rest} && cd {rest}")
        elif word == "ENV":
            lines += [f"export {each}" for each in rest.split()]
        elif word == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            lines.append(f"mkdir -p {target if target.endswith('/') else Path(target).parent}")
            for name in sources:
                where = f"{target}{name}" if target.endswith("/") else target
                lines.append(f"cp -RT /tmp/context/files/{name} {where}")
    return "\n".join(lines)


def test_the_commands_make_an_image_that_serves(
    tmp_path: Path, pip_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    chroot = Chroot(tmp_path, pip_cache)
    checkout(chroot.context / "files")
    user = re.search(r"--uid (\d+)", "".join(FINAL.all("RUN")))
    assert user is not None
    command = shlex.join(json.loads(FINAL.last("ENTRYPOINT")) + json.loads(FINAL.last("CMD")))
    serve = SERVE.format(user=user[1], command=command, health=shlex.join(health_command(FINAL)))
    python = Path(base_python())
    prelude = PRELUDE.format(python=python, parents=" ".join(str(each) for each in python.parents))
    script = "\n".join([prelude, "cd /", steps(BUILD), "cd /", steps(FINAL), serve])
    said = chroot.run(script, environment(tmp_path / "home", pip_cache))
    assert "10 accepted" in said
    assert said.count("hello") == 10
    assert "speaks TLS" in said
    assert set(re.findall(r"data of (\w+)", said)) == {FINAL.last("USER")}
    assert said.rstrip().endswith("sluice stopped")
