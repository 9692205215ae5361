"""Terminals of some width, for commands of another process and of this one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WIPE = "\r\x1b[K"
"""Begins each step of a progress: it wipes the one before."""
_LINES = 24


class Terminal:
    """A terminal that is read as it is written to.

    Attributes:
        theirs: the descriptor that a process writes to.
        shown: what was written, once the terminal is closed.
    """

    def __init__(self, columns: int) -> None:
        self._ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (_LINES, columns))
        self._read = b""
        self.shown = ""
        # A terminal that nobody reads blocks who writes to it.
        self._reader = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while part := os.read(self._ours, 65536):
                self._read += part
        except OSError:
            # The other side is closed.
            pass

    def __enter__(self) -> Self:
        """Read from now on."""
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Read to the end. Processes that write to it have ended."""
        os.close(self.theirs)
        self._reader.join()
        os.close(self._ours)
        self.shown = self._read.decode()


@contextmanager
def standard_error(columns: int) -> Iterator[Terminal]:
    """Make standard error of this process a terminal."""
    with Terminal(columns) as terminal:
        own = os.dup(terminal.theirs)
        with os.fdopen(own, "w", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stderr", file)
            patch.setenv("TERM", "xterm")
            yield terminal


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: its terminal tells its width itself."""
    kept = {name: text for name, text in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    return {**kept, "TERM": "xterm", **(more or {})}


def on_a_terminal(
    *words: str, columns: int = 100, program: Sequence[str] = ("-m", "pyrmq"), status: int = 0
) -> str:
    """Run a command whose output is a terminal; what it wrote there.

    Args:
        words: the command's.
        columns: width of the terminal.
        program: arguments of the interpreter.
        status: the command's exit status.
    """
    with Terminal(columns) as terminal:
        ended = subprocess.run(
            [sys.executable, *program, *words],
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            env=environment(),
            timeout=50,
            check=False,
        )
    assert ended.returncode == status, terminal.shown
    return terminal.shown


def steps(shown: str) -> list[str]:
    """The steps of a progress that stood in place of each other, without what follows the last."""
    return [step for step in shown.split(WIPE)[1:-1] if step]
