"""The client programs: where they are, what they need, how they are built and run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
STAMPS = HERE.parent.parent / "build"
# All features of one program, one after another; one that hangs ends after 20 s by the program itself.
FEATURES_S = 400
TYPES_S = 60


@dataclass(frozen=True)
class Program:
    """One client library's program: ``build`` and ``run`` are commands in ``folder`` that need ``tools``.

    ``version`` finds the library's version in a file of the folder.
    """

    name: str
    language: str
    folder: str
    tools: tuple[str, ...]
    build: tuple[str, ...]
    run: tuple[str, ...]
    version: tuple[str, str]

    @property
    def path(self) -> Path:
        return HERE / self.folder

    @property
    def library_version(self) -> str:
        """The version the folder pins."""
        file, pattern = self.version
        found = re.search(pattern, (self.path / file).read_text())
        assert found is not None, f"{self.folder}/{file}: no {pattern}"
        return found[1]


_PYTHON = (sys.executable, "-m")
_LOCKED_PROTON = ("../../../requirements.lock", r"python-qpid-proton==([\d.]+)")
_NPM = ("npm", "ci", "--no-audit", "--no-fund", "--silent")
_MAVEN = ("mvn", "-q", "-B", "package")
_JMS_JAR = ("java", "-jar", "target/jms-client.jar")

PROGRAMS = (
    Program(
        *("proton-blocking", "Python", "proton", (), ()),
        (*_PYTHON, "tests.clients.proton.blocking"),
        _LOCKED_PROTON,
    ),
    Program(
        *("proton-handler", "Python", "proton", (), ()),
        (*_PYTHON, "tests.clients.proton.handler"),
        _LOCKED_PROTON,
    ),
    Program(
        *("rhea", "JavaScript", "rhea", ("node", "npm"), _NPM, ("node", "main.js")),
        ("package-lock.json", r'node_modules/rhea": \{\s+"version": "([\d.]+)"'),
    ),
    Program(
        *("rhea-promise", "JavaScript", "rhea-promise", ("node", "npm"), _NPM, ("node", "main.js")),
        ("package-lock.json", r'node_modules/rhea-promise": \{\s+"version": "([\d.]+)"'),
    ),
    Program(
        *("qpid-jms", "Java", "jms", ("java", "mvn"), _MAVEN, _JMS_JAR),
        ("pom.xml", r"qpid-jms-client</artifactId>\s+<version>([\d.]+)"),
    ),
    Program(
        *("protonj2", "Java", "jms", ("java", "mvn"), _MAVEN, (*_JMS_JAR, "--client", "protonj2")),
        ("pom.xml", r"protonj2-client</artifactId>\s+<version>([\d.]+)"),
    ),
    Program(
        *("go-amqp", "Go", "go", ("go",), ("go", "build", "-o", "client", "."), ("./client",)),
        ("go.mod", r"go-amqp v([\d.]+)"),
    ),
    Program(
        *("fe2o3-amqp", "Rust", "rust", ("cargo",), ("cargo", "build", "-q"), ("./target/debug/client",)),
        ("Cargo.toml", r'fe2o3-amqp = \{ version = "=([\d.]+)"'),
    ),
)
BY_NAME = {program.name: program for program in PROGRAMS}
# An application, not a library of its own: it has none of the commands (tests/clients/spring/README.md).
SPRING = Program(
    *("spring", "Java", "spring", ("java", "mvn"), _MAVEN, ("java", "-jar", "target/spring-client.jar")),
    ("pom.xml", r"spring-boot-starter-parent</artifactId>\s+<version>([\d.]+)"),
)


@dataclass(frozen=True)
class Cell:
    """What one feature came to: `pass`, `fail` or `n/a`, and why."""

    result: str
    why: str = ""


@dataclass
class Ran:
    """One run's lines, and what it said otherwise."""

    lines: list[dict[str, object]] = field(default_factory=list)
    status: int | None = 0
    stderr: str = ""


def missing_tools(program: Program) -> list[str]:
    """The tools it needs that are not here."""
    return [tool for tool in program.tools if shutil.which(tool) is None]


def build(program: Program) -> None:
    """Build it, once in a run of several workers; RuntimeError with what the tool said if it can't be."""
    if not program.build:
        return
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    STAMPS.mkdir(exist_ok=True)
    with (STAMPS / f"clients-{program.folder}.run").open("a+") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() == run:
            return
        _build(program)
        stamp.truncate(0)
        stamp.write(run)


def _build(program: Program) -> None:
    done = subprocess.run(
        program.build, cwd=program.path, capture_output=True, text=True, timeout=1500, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program.folder}: {' '.join(program.build)}\n{done.stdout}{done.stderr}")


def environment(url: str, ws_url: str) -> dict[str, str]:
    """What a program is told of the broker."""
    root = str(HERE.parent.parent)
    return os.environ | {"URL": url, "WS_URL": ws_url, "PYTHONPATH": root}


def start(program: Program, env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    """The program at work."""
    return start_command(program, program.run, env, *words)


def start_command(
    program: Program, command: tuple[str, ...], env: dict[str, str], *words: str
) -> subprocess.Popen[str]:
    """Another command of its folder at work."""
    return subprocess.Popen(
        [*command, *words],
        cwd=program.path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(process: subprocess.Popen[str], seconds: float) -> Ran:
    """Its end, or its being ended; the lines it printed until then count."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ran(_lines(out), None, err)
    return Ran(_lines(out), process.returncode, err)


def _lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def features() -> list[str]:
    """The names in README.md's table, in its order."""
    text = (HERE / "README.md").read_text()
    table = text[text.index("## Features") : text.index("## Types")]
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", table, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
