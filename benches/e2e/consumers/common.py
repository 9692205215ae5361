"""What the rows of consumers share: their form, their processes, waiting."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[3]


def figure_row(name: str, what: str, unit: str, target: str, rival: str = "apache") -> Row:
    return Row(name=name, what=what, unit=unit, target=target, rival=rival, less_is_more=True)


def scaled(count: int, scale: float, step: int = 1) -> int:
    return max(step, int(count * scale) // step * step)


@contextmanager
def load(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a load of `loads.py`."""
    command = [sys.executable, "-m", "benches.e2e.consumers.loads", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    figures: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
    if not figures:
        raise RuntimeError(f"{process.args!r} ended without a figure")
    return figures


def await_true(condition: Callable[[], bool], seconds: float, text: str) -> float:
    """Wait until a condition holds; return the seconds that it took."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(f"not within {seconds:g} s: {text}")
        time.sleep(0.002)
    return time.perf_counter() - began
