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
    from collections.abc import Generator, Iterable, Iterator, Sequence

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


class Chosen:
    """The rows that `--rows` names, or all."""

    def __init__(self, words: str | None) -> None:
        """Take the comma list; None for all rows."""
        self._words = set(words.split(",")) if words else None

    def __contains__(self, name: str) -> bool:
        """Return whether this row or group is wanted."""
        return self._words is None or name in self._words

    def named(self, name: str) -> bool:
        """Return whether this row is wanted by its own name."""
        return self._words is not None and name in self._words

    def of(self, names: Iterable[str], group: str | None = None, prefix: str = "") -> set[str]:
        """Return which of these rows are wanted, by the name of their group or by their own."""
        whole = group is not None and group in self
        return {name for name in names if whole or f"{prefix}{name}" in self}


def measure(arguments: argparse.Namespace) -> Generator[Row, None, None]:
    """Run the requested rows; yield each one when it is measured."""
    chosen = Chosen(arguments.rows)
    for part in (_processes, _servers, _beside_rivals, _clients, _operation, _beside_java):
        yield from part(arguments, chosen)


def _processes(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows of starts and imports, and those that need no server."""
    if "start" in chosen:
        yield from rows.start_rows(arguments.rounds)
    if "import" in chosen:
        yield rows.import_time(arguments.rounds)
        wheel = rows.wheel_size(ROOT)
        if wheel:
            yield wheel
    if "codec" in chosen:
        if arguments.quick:
            yield from codec_rows(1, QUICK_CODEC_SECONDS)
        else:
            yield from codec_rows(arguments.rounds)
    if "selection" in chosen:
        yield from selection_rows(arguments.rounds)


def _servers(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows of the name server and of the store, alone and in a broker."""
    if "pop-flight" in chosen:
        yield from in_flight_rows(20_000 if arguments.quick else 1_000_000)
    if names := chosen.of(NAME_SERVER, "nameserver"):
        yield from name_server_rows(names, arguments.rounds, arguments.seconds)
    sizes = {"queues": arguments.queues, "megabytes": arguments.megabytes}
    if alone := chosen.of(STORE, "store", "store-"):
        yield from store_rows(alone, ROOT, arguments.rounds, **sizes)
    if parts := chosen.of(PARTS, "store"):
        times = (arguments.rounds, arguments.seconds)
        yield from store_broker_rows(parts, *times, backlog=arguments.backlog, **sizes)
    if hot := chosen.of(HOT, "hot"):
        yield from hot_window_rows(hot, arguments.rounds, arguments.scale)


def _beside_rivals(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows beside Kafka, NATS and Spark's sources, and those of security."""
    for group, plans in (
        ("rivals", PLANS),
        ("page-cache", MEMORY_PLANS),
        ("security", SECURITY_PLANS),
    ):
        if names := chosen.of([plan.name for plan in plans], group):
            yield from rival_rows(arguments.rounds, arguments.scale, names, plans)
    if "security" in chosen or "handshakes" in chosen:
        yield from handshake_rows(arguments.rounds)
    if secured := chosen.of(JAVA_SECURITY, "security"):
        yield from java_security_rows(secured, arguments.rounds, arguments.seconds)
    if reads := chosen.of([plan.name for plan in SPARK_PLANS], "spark"):
        yield from spark_rows(arguments.rounds, arguments.scale, reads)


def _clients(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows of our producers and consumers."""
    if "producer" in chosen:
        with ExitStack() as stack:
            sides = [stack.enter_context(side())[0] for side in (ours, apache)]
            yield from producer_rows(sides, rounds=arguments.rounds)
    if groups := chosen.of(CONSUMERS, "consumers"):
        yield from consumer_rows(groups, arguments.rounds, arguments.scale)


def _operation(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows of many connections and topics, of operators' commands, and of hours."""
    if many := chosen.of(BREADTH):
        yield from breadth_rows(many, arguments.rounds, arguments.scale)
    if "snapshot" in chosen:
        yield from snapshot_rows(arguments.rounds, arguments.scale)
    if operated := chosen.of(OPERATORS, "operators"):
        yield from operator_rows(operated, arguments.rounds)
    if long := {plan.name for plan in SUSTAINED if chosen.named(plan.name)}:
        times = {"seconds": arguments.sustain, "limit": arguments.keep}
        yield from sustained_rows(long, arguments.rounds, arguments.scale, **times)


def _beside_java(arguments: argparse.Namespace, chosen: Chosen) -> Iterator[Row]:
    """Yield the rows of Java clients, and of ours, on our broker and on Apache's."""
    if not chosen.of(("sync", "batch", "drain", "sql", "python", "pop")):
        return
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


def parsed_arguments() -> argparse.Namespace:
    """Parse the command line; end the process where something cannot be measured."""
    parser = _parser()
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
    return arguments


def _parser() -> argparse.ArgumentParser:
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
    return parser


def main() -> int:
    """Parse the command line, measure, report."""
    arguments = parsed_arguments()
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
