"""`python -m benches.e2e`: measure, print a table, save the raw figures as JSON.

Both sides run at the same time on the same machine and take turns, so a ratio comes from one run.
Compare single figures only with each other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.driver import Driver

from benches.e2e import rows
from benches.e2e.codec import codec_rows
from benches.e2e.nameserver import name_server_rows
from benches.e2e.producer import producer_rows
from benches.e2e.rivals import Duel, rival_rows, rival_table
from benches.e2e.selection import selection_rows
from benches.e2e.servers import VERSION, apache, ours
from benches.e2e.store import store_rows
from benches.e2e.store_broker import PARTS, store_broker_rows
from pyrmq import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent


SENDS = (
    ("sync", "Java client, sync, 64 threads, 128 B", 64, 1),
    ("batch", "Java client, batches of 32, 8 threads", 8, 32),
)
"""Rows of the sending Java client: name, text, threads, messages per send."""


def measure(arguments: argparse.Namespace) -> list[rows.Row]:
    """Run the requested rows."""
    done: list[rows.Row] = []
    chosen = set(arguments.rows.split(",")) if arguments.rows else None

    def wanted(name: str) -> bool:
        return chosen is None or name in chosen

    if wanted("start"):
        done += rows.starts(arguments.rounds)
    if wanted("import"):
        done.append(rows.import_time(arguments.rounds))
        wheel = rows.wheel_size(ROOT)
        if wheel:
            done.append(wheel)
    if wanted("codec"):
        done += codec_rows(arguments.rounds)
    if wanted("nameserver"):
        done += name_server_rows(arguments.rounds, arguments.seconds)
    if wanted("store"):
        sizes = {"queues": arguments.queues, "megabytes": arguments.megabytes}
        done += store_rows(ROOT, arguments.rounds, **sizes)
    parts = {part for part in PARTS if wanted("store") or wanted(part)}
    if parts:
        done += store_broker_rows(
            parts,
            arguments.rounds,
            arguments.seconds,
            backlog=arguments.backlog,
            queues=arguments.queues,
            megabytes=arguments.megabytes,
        )
    if wanted("selection"):
        done += selection_rows(arguments.rounds)
    if wanted("rivals"):
        done += rival_rows(arguments.rounds, arguments.scale)
    if wanted("producer"):
        with ExitStack() as stack:
            sides = [stack.enter_context(side())[0] for side in (ours, apache)]
            done += producer_rows(sides, rounds=arguments.rounds)
    if chosen is None or chosen & {"sync", "batch", "drain", "python"}:
        with ExitStack() as stack:
            sides = [stack.enter_context(side())[0] for side in (ours, apache)]
            driver = stack.enter_context(Driver(VERSION, quick=False, heap_mb=1024))
            for name, what, threads, batch in SENDS:
                if wanted(name):
                    row = rows.Row(what=what, unit="msg/s", target=">= 1.8 times")
                    done.append(
                        rows.java_sends(
                            sides,
                            driver,
                            rounds=arguments.rounds,
                            seconds=arguments.seconds,
                            threads=threads,
                            batch=batch,
                            row=row,
                        )
                    )
            if wanted("drain"):
                row = rows.Row(
                    what="Java push consumer draining a backlog",
                    unit="msg/s",
                    target=">= 1.3 times",
                )
                done.append(
                    rows.java_drains(
                        sides, driver, rounds=arguments.rounds, count=arguments.backlog, row=row
                    )
                )
            if wanted("python"):
                done.append(
                    rows.python_sends(sides, rounds=arguments.rounds, count=200_000, size=128)
                )
    return done


def _figure(row: rows.Row, side: str) -> str:
    if side not in row.figures:
        return "-"
    median = row.median(side)
    return f"{median:,.4g} {row.unit}" if median < 1000 else f"{median:,.0f} {row.unit}"


def table(done: list[rows.Row]) -> str:
    """Return the figures as a Markdown table: medians, ratio, server CPU."""
    lines = [
        "| what | ours | Apache | ratio | server CPU per message, ours / Apache | target |",
        "|---|---|---|---|---|---|",
    ]
    for row in done:
        if isinstance(row, Duel):
            continue
        cells = [_figure(row, side) for side in ("ours", "apache")]
        ratio = f"{row.ratio():.2f}" if row.ratio() is not None else "-"
        cpu = "-"
        if {"ours", "apache"} <= row.cpu_us.keys():
            own, theirs = (
                sum(row.cpu_us[side]) / len(row.cpu_us[side]) for side in ("ours", "apache")
            )
            cpu = f"{own:.1f} / {theirs:.1f} µs ({own / theirs:.2f})"
        lines.append(f"| {row.what} | {cells[0]} | {cells[1]} | {ratio} | {cpu} | {row.target} |")
    return "\n".join(lines)


def wheel_wanted(chosen: str | None) -> bool:
    """Return whether the row of the wheel was requested; it belongs to `import`."""
    return chosen is None or "import" in chosen.split(",")


@contextmanager
def installed() -> Iterator[None]:
    """Let started processes find compiled modules, as pip installs them from a wheel."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as compiled:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        yield


def main() -> int:
    """Parse the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="benches.e2e", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benches" / "results", help="directory of the raw JSON"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each turn of a load")
    parser.add_argument(
        "--backlog", type=int, default=400_000, help="messages that drain and pulls read"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the messages of the rivals' loads"
    )
    parser.add_argument(
        "--queues", type=int, default=40_000, help="queues of the stores that are opened"
    )
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the logs that are opened"
    )
    parser.add_argument(
        "--rows",
        help="comma list of: start,import,codec,nameserver,store,selection,rivals,producer,sync,"
        f"batch,drain,python (default: all); parts of store: {','.join(PARTS)}",
    )
    arguments = parser.parse_args()
    if _core.BUILD_PROFILE != "release":
        parser.error(f"pyrmq is a {_core.BUILD_PROFILE} build: run `make dev` first")
    if wheel_wanted(arguments.rows) and not list((ROOT / "dist").glob("*.whl")):
        print("left out: the wheel's size; `make wheel` makes one in dist/", file=sys.stderr)
    with installed():
        done = measure(arguments)
    print(table(done))
    if any(isinstance(row, Duel) for row in done):
        print(f"\n{rival_table(done)}")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stdout.strip()
    arguments.out.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(tz=datetime.UTC)
    raw = {
        "taken": now.isoformat(timespec="seconds"),
        "commit": commit,
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "rows": [{**vars(row), "ratio": row.ratio()} for row in done],
    }
    path = arguments.out / f"{now:%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"raw figures: {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
