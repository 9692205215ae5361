"""`python -m benches.e2e`: measure, print a table, save the raw figures as JSON.

Both sides run at the same time on the same machine and take turns, so a ratio comes from one run.
Compare single figures only with each other.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.driver import Driver

from benches import report
from benches.bytecode import kept_bytecode
from benches.e2e import rows
from benches.e2e.breadth import ROWS as BREADTH
from benches.e2e.breadth import breadth_rows
from benches.e2e.codec import codec_rows
from benches.e2e.consumers.rows import ROWS as CONSUMERS
from benches.e2e.consumers.rows import consumer_rows
from benches.e2e.hot_window import ROWS as HOT
from benches.e2e.hot_window import hot_window_rows
from benches.e2e.java_security import NAMES as JAVA_SECURITY
from benches.e2e.java_security import java_security_rows
from benches.e2e.nameserver import NAMES as NAME_SERVER
from benches.e2e.nameserver import name_server_rows
from benches.e2e.operators import ROWS as OPERATORS
from benches.e2e.operators import operator_rows
from benches.e2e.pop import in_flight_rows, pop_rows
from benches.e2e.producer import producer_rows
from benches.e2e.rivals import rival_rows
from benches.e2e.rivals.plans import MEMORY_PLANS, PLANS, SECURITY_PLANS
from benches.e2e.security import handshake_rows
from benches.e2e.selection import selection_rows
from benches.e2e.servers import VERSION, apache, ours
from benches.e2e.snapshot import snapshot_rows
from benches.e2e.spark import PLANS as SPARK_PLANS
from benches.e2e.spark import spark_rows
from benches.e2e.store import PARTS as STORE
from benches.e2e.store import store_rows
from benches.e2e.store_broker import PARTS, store_broker_rows
from benches.e2e.sustained import PLANS as SUSTAINED
from benches.e2e.sustained import sustained_rows
from benches.results import ResultsFile, machine
from benches.row import Row
from pyrmq import _core

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent

SENDS = (
    ("sync", "Java client, sync, 64 threads, 128 B", 64, 1),
    ("batch", "Java client, batches of 32, 8 threads", 8, 32),
)
"""Rows of the sending Java client: name, text, threads, messages per send."""


KNOWN = (
    *("start", "import", "codec", "selection"),
    *("nameserver", *NAME_SERVER),
    *("store", *(f"store-{part}" for part in STORE), *PARTS),
    *("hot", *HOT),
    *("rivals", *(plan.name for plan in PLANS)),
    *("page-cache", *(plan.name for plan in MEMORY_PLANS)),
    *("spark", *(plan.name for plan in SPARK_PLANS)),
    *("security", *(plan.name for plan in SECURITY_PLANS), "handshakes", *JAVA_SECURITY),
    *("producer", "sync", "batch", "drain", "sql", "python", "pop", "pop-flight"),
    *("consumers", *CONSUMERS),
    *BREADTH,
    "snapshot",
    *("operators", *OPERATORS),
    *(plan.name for plan in SUSTAINED),
)
"""What `--rows` takes. `nameserver`, `store`, `hot`, `rivals`, `page-cache`, `spark`, `security`,
`consumers` and `operators` stand for all of their line. Those of the last line run only if they are
named: each takes more than twenty minutes."""

QUICK = (
    "start,import,nameserver-routes,store-append,codec,sync,produce,lone,objects,pop,"
    "signed-produce,spark-batch"
)
"""At least one row of each area."""
QUICK_CODEC_SECONDS = 0.02
QUICK_WARM_S = 15.0
QUICK_ROUNDS, QUICK_SECONDS, QUICK_SCALE, QUICK_BACKLOG = 3, 2, 0.5, 200_000


def measure(arguments: argparse.Namespace) -> Generator[Row, None, None]:
    """Run the requested rows; yield each one when it is measured."""
    chosen = set(arguments.rows.split(",")) if arguments.rows else None

    def wanted(name: str) -> bool:
        return chosen is None or name in chosen

    if wanted("start"):
        yield from rows.start_rows(arguments.rounds)
    if wanted("import"):
        yield rows.import_time(arguments.rounds)
        wheel = rows.wheel_size(ROOT)
        if wheel:
            yield wheel
    if wanted("pop-flight"):
        yield from in_flight_rows(20_000 if arguments.quick else 1_000_000)
    if wanted("codec"):
        if arguments.quick:
            yield from codec_rows(1, QUICK_CODEC_SECONDS)
        else:
            yield from codec_rows(arguments.rounds)
    names = {name for name in NAME_SERVER if wanted("nameserver") or wanted(name)}
    if names:
        yield from name_server_rows(names, arguments.rounds, arguments.seconds)
    alone = {part for part in STORE if wanted("store") or wanted(f"store-{part}")}
    if alone:
        sizes = {"queues": arguments.queues, "megabytes": arguments.megabytes}
        yield from store_rows(alone, ROOT, arguments.rounds, **sizes)
    parts = {part for part in PARTS if wanted("store") or wanted(part)}
    if parts:
        yield from store_broker_rows(
            parts,
            arguments.rounds,
            arguments.seconds,
            backlog=arguments.backlog,
            queues=arguments.queues,
            megabytes=arguments.megabytes,
        )
    hot = {name for name in HOT if wanted("hot") or wanted(name)}
    if hot:
        yield from hot_window_rows(hot, arguments.rounds, arguments.scale)
    if wanted("selection"):
        yield from selection_rows(arguments.rounds)
    duels = {plan.name for plan in PLANS if wanted("rivals") or wanted(plan.name)}
    if duels:
        yield from rival_rows(arguments.rounds, arguments.scale, duels)
    states = {plan.name for plan in MEMORY_PLANS if wanted("page-cache") or wanted(plan.name)}
    if states:
        yield from rival_rows(arguments.rounds, arguments.scale, states, MEMORY_PLANS)
    secured = {plan.name for plan in SECURITY_PLANS if wanted("security") or wanted(plan.name)}
    if secured:
        yield from rival_rows(arguments.rounds, arguments.scale, secured, SECURITY_PLANS)
    if wanted("security") or wanted("handshakes"):
        yield from handshake_rows(arguments.rounds)
    java_secured = {name for name in JAVA_SECURITY if wanted("security") or wanted(name)}
    if java_secured:
        yield from java_security_rows(java_secured, arguments.rounds, arguments.seconds)
    reads = {plan.name for plan in SPARK_PLANS if wanted("spark") or wanted(plan.name)}
    if reads:
        yield from spark_rows(arguments.rounds, arguments.scale, reads)
    if wanted("producer"):
        with ExitStack() as stack:
            sides = [stack.enter_context(side())[0] for side in (ours, apache)]
            yield from producer_rows(sides, rounds=arguments.rounds)
    groups = {name for name in CONSUMERS if wanted("consumers") or wanted(name)}
    if groups:
        yield from consumer_rows(groups, arguments.rounds, arguments.scale)
    many = {name for name in BREADTH if wanted(name)}
    if many:
        yield from breadth_rows(many, arguments.rounds, arguments.scale)
    if wanted("snapshot"):
        yield from snapshot_rows(arguments.rounds, arguments.scale)
    operated = {name for name in OPERATORS if wanted("operators") or wanted(name)}
    if operated:
        yield from operator_rows(operated, arguments.rounds)
    long = {plan.name for plan in SUSTAINED} & (chosen or set())
    if long:
        yield from sustained_rows(
            long,
            arguments.rounds,
            arguments.scale,
            seconds=arguments.sustain,
            limit=arguments.keep,
        )
    java_rows = {"sync", "batch", "drain", "sql", "python", "pop"}
    if chosen is not None:
        java_rows &= chosen
    if java_rows:
        yield from _beside_java(arguments, java_rows)


def _beside_java(arguments: argparse.Namespace, chosen: set[str]) -> Iterator[Row]:
    """Yield the rows of Java clients, and of ours, on our broker and on Apache's."""
    rounds = arguments.rounds
    with ExitStack() as stack:
        sides = [stack.enter_context(side())[0] for side in (ours, apache)]
        driver = stack.enter_context(Driver(VERSION, quick=False, heap_mb=1024))
        for name, what, threads, batch in SENDS:
            if name in chosen:
                row = Row(name=name, what=what, unit="msg/s", target=">= 1.8 times")
                sends = {"seconds": arguments.seconds, "threads": threads, "batch": batch}
                yield rows.java_sends(sides, driver, rounds=rounds, row=row, **sends)
        if "drain" in chosen:
            what = "Java push consumer draining a backlog"
            row = Row(
                name="drain", what=what, unit="msg/s", target=">= 1.6 times, a fifth of the CPU"
            )
            count = arguments.backlog
            yield rows.java_drains(sides, driver, rounds=rounds, count=count, row=row)
        if "sql" in chosen:
            count = arguments.backlog
            yield rows.java_filters(sides, driver, rounds=rounds, count=count)
        if "pop" in chosen:
            yield from pop_rows(sides, driver, rounds=rounds, count=arguments.backlog // 4)
        if "python" in chosen:
            yield rows.python_sends(sides, rounds=rounds, count=200_000, size=128)


def _figure(row: Row, side: str) -> str:
    if side not in row.figures:
        return "-"
    median = row.median(side)
    text = f"{median:,.4g} {row.unit}" if median < 1000 else f"{median:,.0f} {row.unit}"
    return text if row.steady.get(side, True) else f"{text}, not steady"


def table(done: Sequence[Row]) -> str:
    """Return the figures as a Markdown table: medians, ratio, server CPU."""
    lines = [
        "| what | ours | the other | ratio | server CPU per message, ours / Apache | target |",
        "|---|---|---|---|---|---|",
    ]
    for row in done:
        if row.client_us:
            continue
        cells = [_figure(row, side) for side in ("ours", row.rival)]
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
        "--scale",
        type=float,
        default=1.0,
        help="share of the messages, seconds, bytes and members of most rows",
    )
    parser.add_argument(
        "--queues", type=int, default=40_000, help="queues of the stores that are opened"
    )
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the logs that are opened"
    )
    parser.add_argument(
        "--sustain",
        type=float,
        default=600,
        help=f"seconds of each side of the rows {', '.join(plan.name for plan in SUSTAINED)}",
    )
    parser.add_argument(
        "--keep", type=int, default=20_000_000_000, help="bytes of log that each side of them keeps"
    )
    parser.add_argument(
        "--rows",
        help=f"comma list of: {','.join(KNOWN)} (default: all)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"a row of each area ({QUICK}) in short turns: in less than ten minutes",
    )
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows = arguments.rows or QUICK
        rows.warm_limit_s = QUICK_WARM_S
        arguments.rounds = min(arguments.rounds, QUICK_ROUNDS)
        arguments.seconds = min(arguments.seconds, QUICK_SECONDS)
        arguments.scale = min(arguments.scale, QUICK_SCALE)
        arguments.backlog = min(arguments.backlog, QUICK_BACKLOG)
    unknown = sorted(set((arguments.rows or "").split(",")) - {"", *KNOWN})
    if unknown:
        near = difflib.get_close_matches(unknown[0], KNOWN, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        parser.error(f"unknown rows: {', '.join(unknown)}{hint}; known: {', '.join(KNOWN)}")
    if _core.BUILD_PROFILE != "release":
        parser.error(f"pyrmq is a {_core.BUILD_PROFILE} build: run `make dev` first")
    if wheel_wanted(arguments.rows) and not list((ROOT / "dist").glob("*.whl")):
        print("left out: the wheel's size; `make wheel` makes one in dist/", file=sys.stderr)
    found = machine()
    if found["busy"]:
        print(
            f"the machine is busy: its load average is {found['load_at_start']}; these figures are "
            "not worth citing",
            file=sys.stderr,
        )
    file = ResultsFile(arguments.out, machine=found, options=vars(arguments))
    began = time.monotonic()
    try:
        with kept_bytecode(), closing(measure(arguments)) as measured:
            for row in measured:
                file.add(row)
                passed = time.monotonic() - began
                print(f"{passed:.0f} s: measured {row.name or row.what}", file=sys.stderr)
    finally:
        # A row that fails, or Ctrl-C, takes none of the rows before it along.
        if file.rows:
            show(file.rows)
            print(f"raw figures: {file.path}", file=sys.stderr)
    return 0


def show(done: Sequence[Row]) -> None:
    """Print the tables of the rows."""
    print(table(done))
    rivals = {row.name: row for row in done if row.client_us}
    if rivals:
        print(f"\n{report.table(list(rivals), rivals)}")
    latencies = report.latency_table(done)
    if latencies:
        print(f"\n{latencies}")


if __name__ == "__main__":
    sys.exit(main())
