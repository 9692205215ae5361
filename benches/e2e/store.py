"""The rows of the store alone: runs `crates/store/examples/store_bench/` and reads its output."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING

from benches.e2e.generator import binary, build
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TARGETS = {
    "append_128_of_bare": (
        "store, batches of 32, 128 B: its bytes of bare writes' bytes",
        ">= 0.5 times",
    ),
    "append_1024_of_bare": (
        "store, batches of 32, 1 KiB: its bytes of bare writes' bytes",
        ">= 0.5 times",
    ),
    "sync_lone_of_fdatasync": (
        "store, SYNC_FLUSH, one sender: p50 of write and fdatasync",
        "<= 1.3 times",
    ),
    "sync_64_senders": ("store, SYNC_FLUSH, 64 senders", ""),
    "put_slowest_around_a_roll": ("store, the slowest put of 1 KiB around a roll, median", ""),
    "put_slowest_around_any_roll": ("store, the slowest put of 1 KiB around any roll", ""),
    "put_roll_of_p999": ("store, a roll's slowest put of the p99.9 without rolls", "<= 1 times"),
    "put_p999_without_roll": ("store, put of 1 KiB, p99.9, no roll", ""),
    "start_clean": ("store, start after a clean stop", "<= 5 s"),
    "start_after_kill": ("store, start after kill -9", "<= 5 s"),
    "queues_open": ("store, start with one message in each of many queues", "<= 10 s"),
}
"""The program's rows to their text and target; others are printed unchanged."""


LIMIT_S = 3600.0
"""Seconds that the program may take for all rows."""

PARTS = ("append", "put", "staged", "sync", "roll", "start", "queues")
"""Rows of the program. `--rows` takes them with `store-` before the name."""


def store_rows(
    parts: set[str], root: Path, rounds: int, *, queues: int = 40_000, megabytes: int = 1000
) -> Iterator[Row]:
    """Build and run the program; yield a row for each of its lines.

    Args:
        parts: of `PARTS`.
        root: the source tree.
        rounds: turns of each side.
        queues: queues of the rows about starting.
        megabytes: size of the log of the rows about starting.
    """
    build("pyrmq-store", "store_bench")
    named = ",".join(part for part in PARTS if part in parts)
    command = [str(binary("store_bench")), "--rows", named]
    command += ["--rounds", str(rounds), "--queues", str(queues), "--mb", str(megabytes)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        # A store that hangs must not hold up the run for ever.
        limit = threading.Timer(LIMIT_S, program.kill)
        limit.start()
        try:
            # It prints the lines of a part when that is measured.
            yield from (_row(json.loads(line)) for line in program.stdout)
        except BaseException:
            program.kill()
            raise
        finally:
            limit.cancel()
    if program.returncode:
        raise subprocess.CalledProcessError(program.returncode, command)


def _row(line: dict[str, object]) -> Row:
    name, unit, values = str(line["row"]), str(line["unit"]), line["values"]
    assert isinstance(values, list)
    what, target = TARGETS.get(name, (f"store, {name.replace('_', ' ')}", ""))
    row = Row(what=what, unit=unit, target=target, less_is_more=unit in {"s", "us"})
    for value in values:
        row.add("ours", float(value))
    return row
