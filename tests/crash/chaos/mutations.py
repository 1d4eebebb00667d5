"""``python -m tests.crash.chaos.mutations [NAME …]``: whether the lives find a fault that was repaired.

Each mutation takes one repair of the store out, in a copy of the checkout: nothing here is changed. Lives are
led on that copy, from a few seeds, until one of them is wrong; it is *caught* then. ``--control`` leads the
same lives on a copy without a change first, in which nothing may be found. A file that is compiled is
compiled anew in the copy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[3]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "__pycache__", "node_modules", "data")
# A life that hangs is wrong by itself; this bounds all of a seed's, on a machine that does other things too.
MOST_SECONDS = 1800
# setup.py, of whose modules only one is compiled.
COMPILE = """
import runpy, sys
import Cython.Build
cythonize = Cython.Build.cythonize
wanted, sys.argv = sys.argv[1], ["setup.py", "-q", "build_ext", "--inplace"]
Cython.Build.cythonize = lambda modules, **given: cythonize(
    [each for each in modules if each.sources == [wanted]], **given)
runpy.run_path("setup.py", run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Edit:
    """One place: the text that is there once, and what is put in its place."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """A repair taken out, and the lives that are to find it: so many sound ones and so many with faults.

    ``aim`` and ``busy`` are the lives' own.
    """

    told: str
    edits: tuple[Edit, ...]
    lives: int
    faults: int
    aim: str = ""
    busy: int = 1
    seeds: tuple[int, ...] = field(default=(1, 2, 3))


DISK, JOBS = "broker/store/disk.py", "broker/store/jobs.py"
GIVEN_BACK = (
    Edit(
        "broker/store/pages.py",
        "            given_back, count = shelf.updates.get(seq, (flags, count))\n"
        "            unsure = 0 if given_back & DURABLE else UNSURE\n"
        "            found.append((seq, flags | given_back | DURABLE | unsure, count, expires_ms, data))\n",
        "            given_back, count = shelf.updates.get(seq, (flags, count))\n"
        "            if seq in shelf.updates:\n"
        "                flags = given_back & ~DURABLE & ~UNSURE\n"
        "            found.append((seq, flags, count, expires_ms, data))\n",
    ),
    Edit(
        "broker/store/recovered.py",
        "        given_back, count = shelf.updates.get(seq, (flags, count))\n"
        "        messages.append((seq, flags | given_back | DURABLE, count, expires_ms, data))\n",
        "        given_back, count = shelf.updates.get(seq, (flags, count))\n"
        "        if seq in shelf.updates:\n"
        "            flags = given_back & ~DURABLE\n"
        "        messages.append((seq, flags, count, expires_ms, data))\n",
    ),
)
GOES_ON = (
    Edit(
        DISK,
        "        silence(self.bell)\n        if self.state != FAILED:\n            self._take_note()\n"
        "        if self.state != FAILED:\n            self._append_to_streams()\n",
        "        silence(self.bell)\n        self._take_note()\n"
        "        if True:\n            self._append_to_streams()\n",
    ),
    Edit(
        DISK,
        "        while self.state != FAILED and (done := self._jobs.next_done()) is not None:\n",
        "        while (done := self._jobs.next_done()) is not None:\n",
    ),
    Edit(
        DISK,
        "        if self.state == FAILED:\n            return\n        is_full",
        "        is_full",
    ),
    Edit(
        DISK,
        "        if self.state == FAILED:\n            return\n        if self.on_checkpoint",
        "        if self.on_checkpoint",
    ),
    Edit(
        JOBS,
        "        if self.halted or self._journal.fault:\n            return\n"
        "        try:\n            # The directory",
        "        try:\n            # The directory",
    ),
    Edit(
        JOBS,
        "        if self.halted:\n            return\n        try:\n            fd = ",
        "        try:\n            fd = ",
    ),
    Edit(DISK, "        self._jobs.halted = True\n        self.journal.halt()\n", ""),
    # As it was then: nothing of a checkpoint that failed is still to be said.
    Edit(
        DISK,
        "            self._fail(described(done.fault))\n            return\n",
        "            self._fail(described(done.fault))\n            self._busy = False\n            return\n",
    ),
)
NOT_MADE = (
    Edit(
        JOBS,
        "            write(taken, self._files, self._pages, self._directory, self._streams)\n"
        "        except Exception",
        "            write(taken, self._files, self._pages, self._directory, self._streams)\n"
        "            for number in taken.files:\n"
        "                self._journal.retire(number)\n"
        "                self._files.retire(number)\n"
        "        except Exception",
    ),
    Edit(
        JOBS,
        "        for number in taken.files:\n            self._journal.retire(number)\n"
        "            self._files.retire(number)\n        self._end",
        "        self._end",
    ),
    Edit(
        "broker/store/files.py",
        '                log.warning("%s: can\'t be put aside yet: %s", self.path(each), fault.strerror)\n',
        "                raise\n",
    ),
)
NODES, RESTORATION = "broker/manage/nodes.py", "broker/manage/restoration.py"
RECOVERY = "broker/server/recovery.py"
ONE_NAME_FOR_TWO = (
    Edit(
        "broker/engine/lifecycle.py",
        "        if self._topology.has(name):\n",
        "        if name in self._topology.nodes:\n",
    ),
    Edit(
        NODES,
        "        return self._engine.topology.has(name) or self.aside.has(name)\n",
        "        return name in self._engine.topology.nodes\n",
    ),
    Edit(
        NODES,
        "        if name in self._engine.topology.subscriptions:\n            raise",
        "        if not name:\n            raise",
    ),
    Edit(
        RESTORATION,
        "        called = subscriptions.free_name(name) if self._nodes.is_taken(name) else name\n",
        "        called = name\n",
    ),
    Edit(
        RECOVERY,
        "                self._serve(said, topics)\n            except Exception as fault:",
        "                self._serve(said, topics)\n            except ZeroDivisionError as fault:",
    ),
)
NOT_BROWSED = (
    Edit(
        "broker/queues/queue.py",
        "            if self.gap and self.disk is not None:\n"
        "                ahead = self.disk.ahead(reader)\n",
        "",
    ),
)

MUTATIONS = {
    "durable": Mutation("a message that came back is durable no more", GIVEN_BACK, 60, 0),
    "body": Mutation(
        "a large message that came back comes without its body",
        (
            *GIVEN_BACK,
            Edit(
                "broker/engine/letters.py",
                "        if flags & LARGE:\n            return True\n",
                "        if flags & LARGE:\n            return False\n",
            ),
        ),
        60,
        0,
    ),
    "goes on": Mutation("a failed store goes on making checkpoints", GOES_ON, 40, 80, "directory.mdb"),
    "not made": Mutation(
        "a rename that fails behind the commit is taken for a checkpoint that wasn't made",
        NOT_MADE,
        10,
        60,
        "rename:spare-",
        busy=4,
    ),
    "one name": Mutation("a producer may attach to a subscription's name", ONE_NAME_FOR_TWO, 20, 0),
    "on disk": Mutation("browsers and selectors look at memory alone", NOT_BROWSED, 20, 0),
    "first file": Mutation(
        "a start on a full disk is refused",
        (Edit(DISK, "            return -1, described(fault)\n", "            raise\n"),),
        10,
        60,
        "full disk",
    ),
}


class Stale(Exception):  # noqa: N818 - the mutation is at fault
    """The text that a mutation replaces isn't there, or more than once."""


def copied(folder: Path) -> Path:
    """The checkout as it is, with what was compiled."""
    made = folder / "checkout"
    shutil.copytree(ROOT, made, symlinks=True, ignore=LEFT_OUT)
    return made


def mutate(checkout: Path, edits: tuple[Edit, ...]) -> None:
    """Put the edits in, and compile anew what has to be. Stale where the text has changed since."""
    for edit in edits:
        path = checkout / edit.file
        text = path.read_text()
        if text.count(edit.before) != 1:
            raise Stale(f"{edit.file} has {text.count(edit.before)} times:\n{edit.before}")
        path.write_text(text.replace(edit.before, edit.after))
    for file in sorted({edit.file for edit in edits}):
        path = checkout / file
        if path.suffix == ".pyx" or path.with_suffix(".pxd").exists():
            subprocess.run([sys.executable, "-c", COMPILE, file], cwd=checkout, check=True)


def lead(checkout: Path, mutation: Mutation, seed: int, folder: Path) -> str:
    """The breach that lives on that copy met, or nothing; what they said is in the folder."""
    command = [sys.executable, "-m", "tests.crash.chaos", "--seed", str(seed)]
    command += ["--lives", str(mutation.lives), "--faults", str(mutation.faults), "--aim", mutation.aim]
    command += ["--busy", str(mutation.busy)]
    told = os.environ | {"PYTHONPATH": str(checkout), "TMPDIR": str(folder)}
    log = folder / f"seed-{seed}.log"
    with log.open("w") as said:
        try:
            done = subprocess.run(
                command,
                cwd=checkout,
                env=told,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"seed {seed}: not all were led in {MOST_SECONDS} s", flush=True)
            return ""
    text = log.read_text()
    if done.returncode == 0:
        return ""
    if "BREACH" not in text:
        raise RuntimeError(f"the lives ended with status {done.returncode}:\n{text[-3000:]}")
    lines = text[text.index("BREACH") :].splitlines()
    return " ".join(lines[:3])[:300]


def tried(name: str, mutation: Mutation, control: bool) -> bool:
    """Whether the lives catch it; what happened is printed."""
    with TemporaryDirectory(prefix="sluice-mutation-") as place:
        checkout = copied(Path(place))
        if control:
            for seed in mutation.seeds:
                found = lead(checkout, mutation, seed, Path(place))
                if found:
                    print(f"{name}: without it seed {seed} finds {found}", flush=True)
                    return False
        mutate(checkout, mutation.edits)
        for seed in mutation.seeds:
            found = lead(checkout, mutation, seed, Path(place))
            if found:
                print(f"{name}: caught with seed {seed}: {found}", flush=True)
                return True
    print(f"{name}: NOT CAUGHT with seeds {mutation.seeds}: {mutation.told}", flush=True)
    return False


def main() -> int:
    """The status is 1 if one isn't caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.chaos.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MUTATIONS)}; all of them")
    parser.add_argument("--control", action="store_true", help="the same lives without a change first")
    args = parser.parse_args()
    unknown = set(args.names) - set(MUTATIONS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results = [tried(name, MUTATIONS[name], args.control) for name in args.names or MUTATIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
