"""The machine on which `make bare` runs both commands has what the README asks for and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.bare import Machine, UnableError

THERE = ("make", "cc", "sh", "sed", "python3")
NOT_THERE = ("git", "curl", "java", "node", "prometheus", "chromium", "pkg-config", "g++")
PROGRAM = "#include <Python.h>\nint main(void) { return PY_MAJOR_VERSION - 3; }\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One with an empty folder for a clone."""
    made = Machine(tmp_path_factory.mktemp("bare"))
    made.clone.mkdir()
    try:
        made.prepare()
    except UnableError as why:
        pytest.skip(str(why))
    return made


def said(machine: Machine, script: str) -> list[str]:
    done = subprocess.run(
        machine.command(["sh", "-c", script]), env=machine.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_nothing_but_what_is_asked_for_is_found(machine: Machine) -> None:
    found = said(machine, f"for each in {' '.join(THERE + NOT_THERE)}; do command -v $each || true; done")
    assert [Path(each).name for each in found] == list(THERE)
    assert said(machine, "echo $HOME; ls -A ~") == [machine.environment()["HOME"]]


def test_it_compiles_against_the_interpreter_and_nothing_else(machine: Machine) -> None:
    (machine.clone / "asked.c").write_text(PROGRAM)
    headers = "python3 -c \"import sysconfig; print(sysconfig.get_path('include'))\""
    assert said(machine, f"cc -I $({headers}) asked.c -o asked && ./asked && echo fine") == ["fine"]
    other = "echo '#include <openssl/ssl.h>' | cc -E -xc - > /dev/null 2>&1 || echo none"
    assert said(machine, other) == ["none"]
