"""`make asan`: the compiled part with AddressSanitizer and UBSan, under the fuzzers' inputs and real clients.

`python -m tests.fuzz.sanitized [--fuzz-only] [PYTEST ARGUMENT ...]`. Without arguments of its own the tests
are
those of WIRE. Python keeps no memory of its own meanwhile (PYTHONMALLOC), so that what lies beside an object
is nobody's. Exit status 1 where a sanitizer has said something, whatever the tests say.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.builds import ROOT
from tests.fuzz.build import built
from tests.fuzz.target import NAMES

# Where the compiled part meets bytes that others chose: frames, pieces of messages, outcomes.
WIRE = tuple(
    f"tests/wire/test_{name}.py" for name in ("bad_input", "random_frames", "corners_message", "unsent")
)
SAID = ROOT / "build" / "sanitizers"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sanitized")
    parser.add_argument("--fuzz-only", action="store_true", help="no broker in a process of its own")
    args, given = parser.parse_known_args()
    folder = built("sanitized")
    SAID.mkdir(parents=True, exist_ok=True)
    for old in SAID.iterdir():
        old.unlink()
    statuses = [_fuzz(folder, name) for name in NAMES]
    if not args.fuzz_only:
        statuses.append(_pytest(folder, given or [*WIRE]))
    for path in sorted(SAID.iterdir()):
        print(f"--- {path.name}\n{path.read_text(errors='replace')[:4000]}")
    if any(SAID.iterdir()):
        print("the sanitizers have found something")
        return 1
    print("the sanitizers have found nothing")
    return max(statuses)


def _fuzz(folder: Path, name: str) -> int:
    """The short run of `make test`, of the sanitized build."""
    code = f"from tests.fuzz.test_fuzz import short_run; short_run({name!r})"
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, env=_environment(folder), check=False)
    print(f"{name}: {'nothing' if ended.returncode == 0 else f'exit status {ended.returncode}'}", flush=True)
    return ended.returncode


def _pytest(folder: Path, arguments: list[str]) -> int:
    """Tests whose brokers are the sanitized ones: they are started where that is found first."""
    tests = [str(ROOT / each) if (ROOT / each.partition("::")[0]).exists() else each for each in arguments]
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--timeout", "600", *tests]
    return subprocess.run(command, cwd=folder, env=_environment(folder), check=False).returncode


def _environment(folder: Path) -> dict[str, str]:
    libraries = [_library(name) for name in ("libasan.so", "libubsan.so")]
    return os.environ | {
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode=99:log_path={SAID}/asan:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:exitcode=99:log_path={SAID}/ubsan",
        "PYTHONMALLOC": "malloc",
        "SLUICE_START_SECONDS": "120",
        "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
        "SLUICE_FUZZ": str(folder),
    }


def _library(name: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(found.stdout.strip()).resolve())


if __name__ == "__main__":
    sys.exit(main())
