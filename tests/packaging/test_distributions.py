"""The sdist and the wheel: built in an empty environment, complete, and enough to run a broker."""

from __future__ import annotations

import re
import signal
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.packaging.clean import ROOT, run
from tests.packaging.conftest import Distributions, Installed

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]

SHIPPED = {".py", ".pxd", ".pyi", ".h", ".typed"}
OWN = ("broker/", "pyspark_sluice/", "pyspark_sluice_name/", "sluice_mq-")


def ours(suffixes: set[str]) -> set[str]:
    """Files of the package in the checkout."""
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "broker").rglob("*")
        if path.suffix in suffixes and "__pycache__" not in path.parts and "console" not in path.parts
    }


def console() -> set[str]:
    """The console's files, whatever they are."""
    folder = ROOT / "broker/http/console"
    return {
        str(path.relative_to(ROOT)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }


# What the modules of a package are linked together in.
LINKED = {"broker/_linked", "broker/amqp/_linked_amqp", "broker/client/_linked_client"}


def compiled() -> set[str]:
    """Modules that are compiled, as paths without a suffix."""
    sources = [path for path in (ROOT / "broker").rglob("*") if path.suffix == ".pyx"]
    sources += [path for path in (ROOT / "broker").rglob("*.py") if path.with_suffix(".pxd").exists()]
    names = {str(path.relative_to(ROOT).with_suffix("")) for path in sources}
    return names - {"broker/constants"}


def test_the_wheel_has_every_module_and_file(distributions: Distributions) -> None:
    names = set(zipfile.ZipFile(distributions.wheel).namelist())
    assert ours(SHIPPED) - names == set()
    assert console() - names == set()


def test_the_wheel_has_what_spark_looks_for(distributions: Distributions) -> None:
    names = zipfile.ZipFile(distributions.wheel).namelist()
    found = {name for name in names if name.startswith("pyspark_sluice")}
    folders = (ROOT / "pyspark_sluice", ROOT / "pyspark_sluice_name")
    assert found == {str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.py")}


def test_the_wheel_has_every_compiled_module_and_nothing_else(distributions: Distributions) -> None:
    names = zipfile.ZipFile(distributions.wheel).namelist()
    assert {
        re.sub(r"\.[^/]*\.so$", "", name) for name in names if name.endswith(".so")
    } == compiled() | LINKED
    assert [name for name in names if not name.startswith(OWN)] == []
    assert [name for name in names if name.endswith((".c", ".pyc"))] == []


def test_the_wheel_says_what_it_is(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        [metadata] = [name for name in wheel.namelist() if name.endswith("METADATA")]
        told = wheel.read(metadata).decode()
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert "\nName: sluice-mq\n" in told
    assert "\nLicense-Expression: Apache-2.0\n" in told


def test_the_sdist_is_the_checkout_without_what_was_built(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = (
        ours(SHIPPED | {".pyx"})
        | console()
        | {"setup.py", "LICENSE", "policies/example.yaml", "etc/broker.yaml"}
    )
    assert wanted - names == set()
    built = [name for name in names if name.endswith((".so", ".pyc", ".c"))]
    assert [name for name in built if not name.startswith(("tests/", "bench/"))] == []


class Serving:
    """A broker of the installed wheel, somewhere else than the checkout."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        self.installed = installed
        self.folder = folder
        self.process = subprocess.Popen(
            [installed.sluice, "serve", "--listen", "amqp://127.0.0.1:0", "--http", "127.0.0.1:0"],
            cwd=folder,
            env=installed.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.rstrip().endswith("ready"):
                break
        self.said = "".join(said)
        found = re.search(r"listening (amqp://\S+)\s+listening (http://\S+)", self.said)
        assert found is not None, self.said
        self.url, self.http = found.groups()

    def command(self, *words: str) -> str:
        """What `sluice` says to these words."""
        return run([self.installed.sluice, *words, "-b", self.url], self.installed.env, self.folder)


@pytest.fixture(scope="module")
def serving(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Started in an empty folder, with neither settings nor policies."""
    serving = Serving(installed, tmp_path_factory.mktemp("elsewhere"))
    yield serving
    serving.process.send_signal(signal.SIGTERM)
    assert serving.process.wait(20) == 0
    assert serving.process.stderr is not None
    serving.process.stderr.close()


def test_what_was_installed_is_what_runs(installed: Installed, tmp_path: Path) -> None:
    code = "import broker.amqp.links.connection; from broker.engine import engine; print(engine.__file__)"
    where = run([installed.python, "-c", code], installed.env, tmp_path).strip()
    assert where.startswith(str(installed.folder))
    assert where.endswith(".so")


def test_the_installed_command_knows_its_version(installed: Installed, tmp_path: Path) -> None:
    assert re.fullmatch(
        r"sluice \d+\.\d+\.\d+\n", run([installed.sluice, "--version"], installed.env, tmp_path)
    )
    for what in ("policies", "broker", "events", "reference"):
        assert run([installed.sluice, "schema", what], installed.env, tmp_path)


def test_a_broker_of_the_wheel_takes_and_gives_messages(serving: Serving) -> None:
    assert "10 accepted" in serving.command("send", "q", "--count", "10", "--body", "hello")
    assert serving.command("receive", "q", "--count", "10").count("hello") == 10
    assert "q" in serving.command("stat", "-f")
    assert (serving.folder / "data").is_dir()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_broker_of_the_wheel_answers_http(serving: Serving, path: str) -> None:
    with urlopen(serving.http + path, timeout=10) as answer:
        assert answer.status == 200


def test_the_console_of_the_wheel_is_served_whole(serving: Serving) -> None:
    files = [name.removeprefix("broker/http/console/") for name in console()]
    if not files:
        pytest.skip("this checkout has no console")
    with urlopen(f"{serving.http}/", timeout=10) as page:
        text = page.read().decode()
    assert page.headers["Content-Type"].startswith("text/html")
    linked = [name for name in re.findall(r'(?:src|href)="/?([^":#]+)"', text) if not name.startswith("api/")]
    for name in linked:
        with urlopen(f"{serving.http}/{name}", timeout=10) as answer:
            assert answer.status == 200, name
