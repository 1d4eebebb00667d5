"""The console's files as they are served: types, headers, and no way to anything else."""

from __future__ import annotations

import http.client
import re
import tomllib
from glob import glob
from pathlib import Path

import pytest

from broker.http.server import files
from tests.wire.conftest import START_SECONDS, RunningBroker

pytestmark = pytest.mark.wire

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "broker" / "http" / "console"


def asked(
    broker: RunningBroker, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)
    connection.putrequest(method, path)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read()
    connection.close()
    return found


def test_every_file_is_served_with_its_type_and_nothing_foreign_runs(live: RunningBroker) -> None:
    paths = [route.path for route in files.routes()]
    assert len(paths) == len([path for path in FOLDER.rglob("*.*") if path.suffix in files.TYPES])
    for path in paths:
        status, headers, body = asked(live, path)
        name = "index.html" if path == "/" else path.removeprefix("/console/")
        assert (status, body) == (200, (FOLDER / name).read_bytes())
        assert headers["Content-Type"] == files.TYPES[Path(name).suffix]
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["Cache-Control"] == "no-cache"
        assert asked(live, path, If_None_Match=headers["Etag"])[::2] == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/console/../app.py",
        "/console/..%2fapp.py",
        "/console/%2e%2e/app.py",
        "/console//etc/passwd",
        "/console/pages/../../app.py",
        "/console/main.js%00",
        "/console/",
        "/console",
        "/console/pages",
        "/index.html",
        "/console/index.html",
        "/console/nothing.js",
    ],
)
def test_no_path_leads_anywhere_else(live: RunningBroker, path: str) -> None:
    status, _, body = asked(live, path)
    assert status == 404
    assert b"import" not in body


def test_the_files_can_only_be_read(live: RunningBroker) -> None:
    assert asked(live, "/", "POST", Content_Length="0")[0] == 405
    assert asked(live, "/console/main.js", "DELETE")[0] == 405


def test_no_file_names_another_host_or_holds_a_script_in_a_page() -> None:
    for path in FOLDER.rglob("*.*"):
        text = path.read_text()
        for url in re.findall(r"https?://[^\"'\s)]+", text):
            assert url == "http://www.w3.org/2000/svg", f"{path.name}: {url}"
        assert "innerHTML" not in text
        assert "eval(" not in text
    index = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    preloaded = set(re.findall(r'rel="modulepreload" href="/console/([^"]+)"', index))
    modules = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}
    assert preloaded == modules - {"main.js", "theme.js"}
    assert re.findall(r"<style|\sstyle=|\son\w+=", index) == []


def test_a_wheel_has_them() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    globs = known["broker.http"]
    # As setuptools reads them: `**` stands for files too.
    found = {each for pattern in globs for each in glob(pattern, root_dir=FOLDER.parent, recursive=True)}  # noqa: PTH207
    served = {path for path in FOLDER.rglob("*.*") if path.suffix in files.TYPES}
    assert {str(path.relative_to(FOLDER.parent)) for path in served} <= found
