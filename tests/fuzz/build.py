"""Builds of their own for the fuzzers and the sanitizers, in build/: `python -m tests.fuzz.build coverage`.

The same sources and directives as the shipped ones (setup.py), copied, so that nothing stands in the way of
what is installed. What was built is built anew only where a source is newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.builds import ROOT, broker_built, newest

PROBE = "probe.pyx"
# As in setup.py, for what is not built by that.
FLAGS = {
    "shipped": [],
    "coverage": ["-fsanitize-coverage=trace-pc,trace-cmp"],
    "sanitized": ["-fsanitize=address,undefined"],
}
# Proton shifts numbers below zero, which is its own matter.
PROTONS = {**FLAGS, "sanitized": ["-fsanitize=address"]}


def built(kind: str) -> Path:
    """The directory with `broker` and `probe` compiled so; it is made where it is missing or old."""
    target = ROOT / "build" / f"fuzz-{kind}"
    stamp = target / "built"
    sources = (ROOT / "setup.py", *Path(__file__).parent.glob("*.[pc]*"))
    if not stamp.exists() or stamp.stat().st_mtime < newest(*sources):
        broker_built(kind, target)
        shutil.copy2(ROOT / "tests/fuzz" / PROBE, target / PROBE)
        _compile(target, kind)
        stamp.touch()
    if FLAGS[kind] and not (target / "proton").exists():
        _proton(target, kind)
    return target


def built_probe() -> Path:
    """The directory with `probe` alone, compiled for the broker that is installed, or of the build that
    runs."""
    if "SLUICE_FUZZ" in os.environ:
        return Path(os.environ["SLUICE_FUZZ"])
    target = ROOT / "build" / "fuzz-probe"
    made = list(target.glob("probe.*.so"))
    sources = [ROOT / "tests/fuzz" / PROBE, *(ROOT / "broker/amqp").glob("*.p[xy][dx]")]
    if not made or made[0].stat().st_mtime < max(each.stat().st_mtime for each in sources):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests/fuzz" / PROBE, target / PROBE)
        _cythonize(target)
    return target


def _compile(target: Path, kind: str) -> None:
    _cythonize(target, FLAGS[kind])
    shim = [
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        "coverage.so",
        str(Path(__file__).with_name("coverage.c")),
    ]
    subprocess.run(shim, cwd=target, check=True)


def _proton(target: Path, kind: str) -> None:
    """Proton itself, of the locked version, compiled so: it reads what our own look has let through."""
    lock = (ROOT / "requirements.lock").read_text()
    wanted = target / "proton.txt"
    entry = re.search(r"^python-qpid-proton==.*?\n(?=\S|\Z)", lock, re.MULTILINE | re.DOTALL)
    assert entry is not None
    wanted.write_text(entry[0])
    environment = os.environ | {"CFLAGS": " ".join(["-O1", "-g", *PROTONS[kind]])}
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-cache-dir", "--no-binary", "python-qpid-proton", "--require-hashes"]
    command += ["--target", str(target), "--requirement", str(wanted)]
    if subprocess.run(command, env=environment, check=False).returncode:
        print("Proton could not be had for this build: the installed one is used as it is", file=sys.stderr)


def _cythonize(folder: Path, flags: list[str] | None = None) -> None:
    """Compile the probe beside which `broker`'s declarations are found."""
    environment = os.environ | {
        "CFLAGS": " ".join(["-O1", "-g", f"-I{ROOT}", *(flags or [])]),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "Cython.Build.Cythonize", "-q", "-i", "-3", PROBE]
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    print(built(sys.argv[1] if len(sys.argv) > 1 else "coverage"))
