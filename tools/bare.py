"""README.md's two commands on a machine that has what README.md asks for and nothing else.

`python -m tools.bare` clones this checkout's last commit, then runs `make run` until the broker answers, and
`make test`, in a mount name space in which

1. /usr/bin, /usr/sbin and /usr/include hold the files of Debian's required packages, of `make`, `gcc` and
   `libc6-dev`, and of those that these depend on: no git, curl, browser, Prometheus, Node.js, shells but
   bash and dash, no headers but the C library's. `python3` is the interpreter that runs this program.
2. The folders that hold other programs (/usr/local/bin, /usr/lib/jvm, …) are empty.
3. The variables are those of a new user; kept is how this machine reaches packages.

Shared libraries stay, for the interpreter needs some; changes that are not committed are not looked at. Needs
Debian or a descendant of it, root or the right to user name spaces, and the usual ports, 5672 and 8672.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

HERE = Path(__file__).parents[1]
READY_S = 900.0
KEPT = re.compile(r"^(PIP_|SSL_|REQUESTS_|https?_proxy|no_proxy)", re.IGNORECASE)
ASKED_FOR = ("make", "gcc", "libc6-dev")
# Where an interpreter that is Debian's own comes from.
DEBIAN_PYTHON = ("python3", "python3-venv", "python3-dev")
REPLACED = ("/usr/bin", "/usr/sbin", "/usr/include")
EMPTIED = (
    *("/usr/local/bin", "/usr/local/sbin", "/usr/local/go", "/usr/local/include", "/usr/games", "/snap"),
    *("/usr/lib/jvm", "/usr/lib/node_modules", "/usr/lib/rabbitmq", "/usr/lib/chromium", "/usr/share/maven"),
)


class UnableError(Exception):
    """Why this machine can't stand in for a bare one."""


class Packages:
    """Debian's packages as they are installed here."""

    def __init__(self) -> None:
        fields = "${Package}\t${Priority}\t${Essential}\t${Pre-Depends}, ${Depends}\n"
        self._needs: dict[str, set[str]] = {}
        self._base: set[str] = set()
        for line in _output("dpkg-query", "--show", "--showformat", fields).splitlines():
            name, priority, essential, needs = line.split("\t")
            self._needs[name] = set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]*)", needs))
            if priority == "required" or essential == "yes":
                self._base.add(name)

    def with_base(self, names: Sequence[str]) -> set[str]:
        """Required packages and these, with all they depend on."""
        missing = [name for name in names if name not in self._needs]
        if missing:
            raise UnableError(f"not installed: {', '.join(missing)}")
        found: set[str] = set()
        left = [*self._base, *names]
        while left:
            name = left.pop()
            if name not in found and name in self._needs:
                found.add(name)
                left += self._needs[name]
        return found

    @staticmethod
    def files(names: set[str]) -> set[Path]:
        """The packages' files, each in the folder where it really is: /bin is /usr/bin today."""
        lines = _output("dpkg-query", "--listfiles", *sorted(names)).splitlines()
        listed = {Path(line) for line in lines if line}
        folders = {folder: folder.resolve() for folder in {path.parent for path in listed}}
        return {folders[path.parent] / path.name for path in listed}


class Machine:
    """The name space: which folder stands for which. ``folder`` holds the clone, a home and the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.clone, self._folder = folder / "sluice", folder
        self._mounts: list[tuple[Path, Path]] = []
        self._python = Path(sys.executable if sys.prefix == sys.base_prefix else sys._base_executable)  # type: ignore[attr-defined]
        for name in ("home", "tmp"):
            (folder / name).mkdir(exist_ok=True)

    def prepare(self) -> None:
        """Write the stand-ins, and see that they can be mounted."""
        self._replace()
        self._empty()
        try:
            self.run(["true"])
        except subprocess.CalledProcessError as fault:
            why = "no right to a mount name space: run it as root, or allow user name spaces"
            raise UnableError(why) from fault

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line that runs these words in the clone."""
        mounts = [shlex.join(["mount", "--bind", str(new), str(old)]) for new, old in self._mounts]
        script = "\n".join(["set -e", *mounts, shlex.join(["cd", str(self.clone)]), 'exec "$@"'])
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--mount", "sh", "-c", script, "sh", *words]

    def environment(self) -> dict[str, str]:
        """The variables of a new user."""
        kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
        home = {"HOME": str(self._folder / "home"), "TMPDIR": str(self._folder / "tmp")}
        return kept | home | {"PATH": "/usr/local/bin:/usr/bin:/bin"}

    def run(self, words: Sequence[str]) -> None:
        """Run a command to its end; CalledProcessError where it fails."""
        subprocess.run(self.command(words), env=self.environment(), check=True)

    def _replace(self) -> None:
        packages = Packages()
        debian = Path(sys.base_prefix) == Path("/usr")
        files = packages.files(packages.with_base([*ASKED_FOR, *(DEBIAN_PYTHON if debian else ())]))
        for each in map(Path, REPLACED):
            new = self._folder / "instead" / each.relative_to("/")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            self._mounts.append((new, each))
            for path in sorted(files):
                if path.is_relative_to(each) and path != each:
                    _copy(path, new / path.relative_to(each))
            for link in _alternatives(each, files):
                _copy(link, new / link.name)
        if not debian:
            # No link: a virtual environment takes the folder of one for where its interpreter is installed.
            command = self._folder / "instead/usr/bin/python3"
            command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self._python))} "$@"\n')
            command.chmod(0o755)

    def _empty(self) -> None:
        empty = self._folder / "instead/empty"
        empty.mkdir(exist_ok=True)
        for each in map(Path, EMPTIED):
            if each.is_dir() and not self._python.resolve().is_relative_to(each):
                self._mounts.append((empty, each))


def _alternatives(folder: Path, files: set[Path]) -> Iterator[Path]:
    """Links in a folder that belong to no package and lead to one of these files, as /usr/bin/cc does."""
    for path in folder.iterdir():
        led = path.is_symlink() and path.readlink().parent == Path("/etc/alternatives")
        if led and path.resolve() in files:
            yield path


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or path.is_file():
        shutil.copy2(path, to, follow_symlinks=False)


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError as fault:
        raise UnableError(f"{words[0]} is not installed: this needs Debian or a descendant of it") from fault


@contextmanager
def running(machine: Machine, words: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on while the block lasts; it and all it started end afterwards."""
    command, env = machine.command(words), machine.environment()
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def make_run(machine: Machine, log: Path) -> None:
    """`make run` until the broker is ready, takes messages and gives them back."""
    with running(machine, ["make", "run"], log) as process:
        deadline = time.monotonic() + READY_S
        while not re.search(r"^sluice .* ready$", log.read_text(errors="replace"), re.MULTILINE):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"make run never was ready:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)
        with urlopen("http://127.0.0.1:8672/readyz", timeout=60) as response:
            assert response.status == 200
        machine.run([".venv/bin/sluice", "send", "bare", "--count", "3", "--body", "hello"])
        machine.run([".venv/bin/sluice", "receive", "bare", "--count", "3"])


def make_test(machine: Machine, workers: int, words: Sequence[str]) -> None:
    """`make test`; with words for pytest, what it sets up and then these tests only."""
    if words:
        machine.run(["make", "dev"])
        machine.run([".venv/bin/python", "-m", "pytest", *words])
    else:
        machine.run(["make", "test", f"WORKERS={workers}"])


def steps(folder: Path, workers: int, words: Sequence[str]) -> None:
    """Both commands, each with how long it took; a clone that the folder has already is gone on with."""
    machine = Machine(folder)
    if not machine.clone.exists():
        subprocess.run(["git", "clone", "-q", str(HERE), str(machine.clone)], check=True)
    machine.prepare()
    began = time.monotonic()
    make_run(machine, folder / "make-run.log")
    print(f"make run: ready and answering after {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    make_test(machine, workers, words)
    print(f"make test: passed in {time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    """Exit status: 0 if both passed, 1 if one failed, 2 if this machine can't say."""
    parser = argparse.ArgumentParser(prog="python -m tools.bare", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the clone here; one that is there is gone on with")
    parser.add_argument("--workers", type=int, default=2, help="make test's WORKERS")
    parser.add_argument("tests", nargs="*", help="files and options for pytest, after --; default: make test")
    given = parser.parse_args()
    try:
        if given.folder:
            given.folder.mkdir(parents=True, exist_ok=True)
            steps(given.folder.resolve(), given.workers, given.tests)
        else:
            with tempfile.TemporaryDirectory(prefix="sluice-bare-") as folder:
                steps(Path(folder), given.workers, given.tests)
    except UnableError as fault:
        sys.stderr.write(f"tools.bare: {fault}\n")
        return 2
    except subprocess.CalledProcessError as fault:
        sys.stderr.write(f"tools.bare: {shlex.join(fault.cmd[-4:])} failed with {fault.returncode}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
