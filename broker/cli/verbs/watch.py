"""The same again and again: a full screen on a terminal, one text after another anywhere else."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.cli.terminal import arguments

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL_S = 2.0


def add_watch(parser: argparse.ArgumentParser) -> None:
    """--watch [SECONDS]."""
    parser.add_argument(
        "--watch",
        nargs="?",
        type=arguments.duration,
        const=INTERVAL_S,
        metavar="SECONDS",
        help=f"again and again, until interrupted (every {INTERVAL_S:g} s); full-screen on a terminal",
    )


def plainly(seconds: float, text: Callable[[], str]) -> None:
    """Prints until interrupted, an empty line after each."""
    for _ in _turns(seconds):
        print(text(), end="\n\n", flush=True)


def on_screen(seconds: float, picture: Callable[[int], RenderableType]) -> None:
    """Draws on a screen of its own, whose width ``picture`` is told, until interrupted."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        for _ in _turns(seconds):
            live.update(picture(live.console.width), refresh=True)


def is_terminal() -> bool:
    """Whether somebody looks at what is printed."""
    return sys.stdout.isatty()


def _turns(seconds: float) -> Iterator[None]:
    while True:
        yield
        time.sleep(seconds)
