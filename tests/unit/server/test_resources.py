"""What the machine has, read from a made-up one and from this one."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.server import resources as machine_room
from broker.server.resources import UNKNOWN_MEMORY, free_bytes, memory_bytes, taken_bytes
from broker.units import GB, KB, MB


def machine(root: Path, **files: object) -> Path:
    """A root in which these files have these contents."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


MEMINFO = f"MemTotal:       {8 * MB} kB\nMemFree:         1234 kB"
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
OWN = "proc/self/cgroup"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8 * GB),
        # A container: its own group is the outermost it sees.
        ({OWN: "0::/", f"{V2}/memory.max": 512 * MB}, 512 * MB),
        ({OWN: "0::/", f"{V2}/memory.max": "max"}, 8 * GB),
        ({f"{V2}/memory.max": 512 * MB}, 512 * MB),
        # A service of systemd's, whose slice has less than itself.
        (
            {
                OWN: "0::/system.slice/sluice.service",
                f"{V2}/system.slice/sluice.service/memory.max": 2 * GB,
                f"{V2}/system.slice/memory.max": GB,
            },
            GB,
        ),
        (
            {OWN: "0::/system.slice/sluice.service", f"{V2}/system.slice/sluice.service/memory.max": 2 * GB},
            2 * GB,
        ),
        # Another group's limit is not ours.
        ({OWN: "0::/mine", f"{V2}/other/memory.max": GB}, 8 * GB),
        # Version 1; no limit is a number beyond every machine.
        ({OWN: "5:cpu:/\n4:memory:/docker/a", f"{V1}/docker/a/memory.limit_in_bytes": 3 * GB}, 3 * GB),
        ({OWN: "4:memory:/docker/a", f"{V1}/memory.limit_in_bytes": 3 * GB}, 3 * GB),
        ({OWN: "4:memory:/", f"{V1}/memory.limit_in_bytes": 9223372036854771712}, 8 * GB),
        # More than there is.
        ({OWN: "0::/", f"{V2}/memory.max": 64 * GB}, 8 * GB),
        ({OWN: "garbage", f"{V2}/memory.max": "garbage"}, 8 * GB),
    ],
)
def test_memory_is_the_machine_s_or_its_control_group_s(
    tmp_path: Path, files: dict[str, object], expected: int
) -> None:
    assert memory_bytes(machine(tmp_path, **{"proc/meminfo": MEMINFO, **files})) == expected


@pytest.mark.parametrize("meminfo", [{}, {"proc/meminfo": "MemFree: 5 kB"}])
def test_a_system_that_does_not_say_is_taken_for_a_small_one(
    tmp_path: Path, meminfo: dict[str, object]
) -> None:
    assert memory_bytes(machine(tmp_path, **meminfo)) == UNKNOWN_MEMORY


def test_this_machine_has_some_of_everything(tmp_path: Path) -> None:
    assert memory_bytes() > 64 * MB
    assert free_bytes(tmp_path) > 0


def test_the_disk_of_a_directory_that_comes_later_is_that_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a disk that stands still: others write to this one."""
    disks = {tmp_path: SimpleNamespace(f_bavail=7, f_frsize=4096)}
    monkeypatch.setattr(machine_room, "os", SimpleNamespace(statvfs=disks.__getitem__))
    assert free_bytes(tmp_path / "not" / "yet") == free_bytes(tmp_path) == 7 * 4096


def test_a_directory_takes_what_its_own_files_do(tmp_path: Path) -> None:
    assert taken_bytes(tmp_path / "not yet") == 0
    (tmp_path / "journal").write_bytes(b"x" * 256 * KB)
    (tmp_path / "temp").mkdir()
    (tmp_path / "temp" / "pages").write_bytes(b"x" * MB)
    assert 256 * KB <= taken_bytes(tmp_path) < 512 * KB
    with (tmp_path / "sparse").open("wb") as sparse:
        os.ftruncate(sparse.fileno(), GB)
    assert taken_bytes(tmp_path) < MB
