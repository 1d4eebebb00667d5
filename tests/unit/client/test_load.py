"""The command line's front door."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.cli import main as front


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {verb}" in said for verb in front.VERBS)


def test_nothing_said_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main([]) == 2
    assert "usage:" in capsys.readouterr().out


def test_an_unknown_verb_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert front.main(["sned"]) == 2
    assert "did you mean 'send'?" in capsys.readouterr().err


def test_help_imports_nothing_heavy() -> None:
    """Help must come at once, whatever a verb needs."""
    code = "import sys; from broker.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    for heavy in ("cproton_ffi", "proton", "rich", "yaml", "asyncio", "broker.client"):
        assert f"'{heavy}'" not in loaded
