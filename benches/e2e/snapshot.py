"""The row `snapshot`: sends on a schedule during `pyrmq store snapshot` of a store of 10 GB.

The full files of the log are sparse, since a snapshot links them and reads none of them. It has no
rival: the sends are compared with those of the same broker while nothing else runs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.e2e.snapshots import write_full_log

from benches.e2e.consumers.common import figure_row, scaled
from benches.e2e.servers import ours
from benches.open_loop import LIBRARY, OpenLoop, at_rate, is_available
from pyrmq import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.e2e.servers import Side
    from benches.row import Row

SEGMENT = 128 << 20
"""The `mappedFileSizeCommitLog` of `MEASURED_STORE`."""
SEGMENTS = 75
RATE, SENDS = 1000, 3000
TOPIC = "bench-snapshot"
BODY = b"x" * 1024


def snapshot_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure sends alone and during snapshots, one after the other; and each snapshot."""
    segments, count = scaled(SEGMENTS, scale), scaled(SENDS, scale, 100)
    size = f"{segments * SEGMENT / 1e9:.0f} GB"
    sends = figure_row(
        "snapshot",
        f"{RATE:,} sends a second of 1 KiB beside snapshots of {size}, p99 / alone",
        "µs",
        "<= 2 times",
        "alone",
    )
    command = figure_row("snapshot-time", f"a snapshot of {size} by links", "s", "<= 1 s")
    if not is_available():
        print(f"not available: {sends.what}: {LIBRARY} is not installed", file=sys.stderr)
        return

    def fill(store: Path) -> None:
        write_full_log(store, segments, SEGMENT)

    with ours(prepare=fill) as (side, _), Producer(name_server=side.name_server) as producer:
        producer.send(TOPIC, BODY)
        _paced(producer, count)
        for _ in range(rounds):
            _add(sends, "alone", _paced(producer, count), side)
            with Snapshots(Path(side.home)) as beside:
                _add(sends, "ours", _paced(producer, count), side)
            for seconds in beside.took:
                command.add("ours", seconds)
    yield from (sends, command)


def _add(row: Row, name: str, turn: OpenLoop, side: Side) -> None:
    row.latencies.setdefault(name, []).append(turn.summary())
    row.add(name, row.latencies[name][-1]["p99"], server=side.broker_pid)


def _paced(producer: Producer, count: int) -> OpenLoop:
    took: list[float] = []

    def send(at: float) -> None:
        producer.send(TOPIC, BODY)
        took.append(time.perf_counter() - at)

    late = at_rate(send, count, RATE)
    return OpenLoop(took, late, "p99")


class Snapshots:
    """Takes one snapshot after the other until it is left; each is removed."""

    def __init__(self, home: Path) -> None:
        """Take them of the store in this directory."""
        self.took: list[float] = []
        self._home = home
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        target = self._home / "snapshot"
        command = [sys.executable, "-m", "pyrmq", "store", "snapshot"]
        while not self._is_over.is_set():
            began = time.perf_counter()
            subprocess.run(
                [*command, self._home / "store", target],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=120,
            )
            self.took.append(time.perf_counter() - began)
            shutil.rmtree(target)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the last one.

        Raises:
            RuntimeError: There was none: the command failed.
        """
        self._is_over.set()
        self._thread.join()
        if not self.took:
            raise RuntimeError(f"no snapshot of {self._home / 'store'} was taken")
