"""The distributions, built and installed once for all tests that look at them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.clean import ROOT, base_python, checkout, constraints, environment, run


@dataclass(frozen=True)
class Distributions:
    """The two files, and the variables they were built under."""

    sdist: Path
    wheel: Path
    env: dict[str, str]


@dataclass(frozen=True)
class Installed:
    """A virtual environment that holds the wheel; nothing in it knows of the checkout."""

    folder: Path
    env: dict[str, str]

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin/python")

    @property
    def sluice(self) -> str:
        """Its command."""
        return str(self.folder / "bin/sluice")


@pytest.fixture(scope="session")
def pip_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip has compiled for one environment serves the others: Proton takes a minute."""
    return tmp_path_factory.mktemp("pip-cache")


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory, pip_cache: Path) -> Distributions:
    """`python -m build` in a clone: the sdist, and the wheel made from that."""
    work = tmp_path_factory.mktemp("build")
    env = environment(work / "home", pip_cache)
    source = work / "source"
    checkout(source)
    run([base_python(), "-m", "venv", work / "venv"], env, work)
    python = work / "venv/bin/python"
    run([python, "-m", "pip", "-q", "install", "build"], env, work)
    run([python, "-m", "build", "--outdir", work / "dist", source], env, work)
    [sdist] = (work / "dist").glob("*.tar.gz")
    [wheel] = (work / "dist").glob("*.whl")
    return Distributions(sdist, wheel, env)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, distributions: Distributions) -> Installed:
    """The wheel and what it needs, in the versions of the lock."""
    work = tmp_path_factory.mktemp("installed")
    venv = work / "venv"
    run([base_python(), "-m", "venv", venv], distributions.env, work)
    versions = constraints(ROOT / "requirements.lock", work / "constraints.txt")
    pip = venv / "bin/pip"
    run([pip, "-q", "install", "-c", versions, distributions.wheel], distributions.env, work)
    return Installed(venv, distributions.env)
