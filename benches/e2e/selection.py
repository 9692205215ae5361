"""Compares our queue selection with the Java client's on equal tables: nanoseconds per choice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import artifacts

from benches.e2e.servers import VERSION
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = "0.05"


def _ours() -> str:
    command = ["cargo", "bench", "--quiet", "-p", "pyrmq-routing", "--bench", "select"]
    return _run([*command, "--", "--seconds", SECONDS])


def _java() -> str:
    return _run(["java", "-cp", artifacts.class_path(VERSION), "RoutingBench", SECONDS])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=900
    )
    return done.stdout


def selection_rows(rounds: int) -> Iterator[Row]:
    """Measure a choice with fault tolerance, for two and sixteen brokers with four queues each."""
    rows: dict[tuple[str, int], Row] = {}
    for _ in range(rounds):
        for side, run in (("ours", _ours), ("apache", _java)):
            for line in run().splitlines():
                if not line.startswith('{"what"'):
                    continue
                one = json.loads(line)
                what = f"selection, {one['brokers']} brokers: {one['what']}"
                row = rows.setdefault(
                    (one["what"], one["brokers"]),
                    Row(what=what, unit="ns", target=">= 10 times", less_is_more=True),
                )
                row.add(side, one["ns"])
    yield from rows.values()
