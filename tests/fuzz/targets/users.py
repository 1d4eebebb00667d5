"""A users' file: refused with the places of what is wrong, and none of its secrets among them; or read, and
written again as what it was.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from broker.config.security import MECHANISMS
from broker.errors import ConfigError
from broker.security.usersfile import _text, read_users
from tests.fuzz.target import Target, expect

# Files that are only in memory, read as those on disk are.
_FDS = [os.memfd_create(name) for name in ("users", "again")]
FILE, AGAIN = (Path(f"/proc/self/fd/{fd}") for fd in _FDS)
for _fd in _FDS:
    os.fchmod(_fd, 0o600)
MARKS = b"!decoys ~!iterations ~65536~groups=~acts_as=~,~$~:~=~alice ~# ~\n~\xc2\xad~\xe2\x80\x83~AAAAAAAA=="
WORDS = (
    *(f"{name}$".encode() for name in MECHANISMS),
    *MARKS.split(b"~"),
)


def check(data: bytes) -> None:
    os.ftruncate(_FDS[0], 0)
    os.pwrite(_FDS[0], data, 0)
    try:
        found = read_users(FILE)
    except ConfigError as refusal:
        expect(bool(refusal.problems), "refused without a reason")
        said = "\n".join(problem.text for problem in refusal.problems)
        for secret in _secrets(data):
            expect(secret not in said, "a secret is shown", said)
        return
    written = _text(found).encode()
    os.ftruncate(_FDS[1], 0)
    os.pwrite(_FDS[1], written, 0)
    again = read_users(AGAIN)
    expect(
        again.users == found.users and again.secret == found.secret, "written and read again it is another"
    )
    users = found.as_users()
    for name in (*found.users, "nobody"):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-1"):
            kept = users.verifier(name, mechanism)
            expect(len(kept.salt) >= 12 and kept.iterations >= 4096, "a verifier that is weak", kept)


def _secrets(data: bytes) -> set[str]:
    """What may be a key or a password, and stands nowhere as a name."""
    secrets: set[str] = set()
    names = ""
    for line in data.decode("utf-8", "replace").split("\n"):
        for at, word in enumerate(line.split()):
            if at == 0 or word.startswith(("groups=", "acts_as=")):
                names += f" {word}"
            else:
                secrets.update(re.findall("[A-Za-z0-9+/]{24,}", word))
    return {each for each in secrets if each not in names}


TARGET = Target("users", check, ("security/usersfile.py", "security/users.py"), WORDS)
