"""Compares this checkout with another one, in turns: `python -m benches.turns OTHER`.

Both must be built with `make dev`. A turn measures both sides, one right after the other; the first
side alternates. A ratio above 1 means that this checkout is better: 1.1, by a tenth.

Two processes of the same build differ by several percent for their whole life, so turns with the
same servers repeat that difference. Therefore both sides' servers restart after `--group` turns,
and the interval is computed over the groups' means: Student's 95 % interval of their logarithms,
with one degree of freedom less than groups. Groups are added until it is narrower than 3 %, or
`--turns` turns are done. A row is slower if its whole interval lies below 0.97; then the exit
status is 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.bytecode import kept_bytecode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "broker_load": "pyrmq-client",
    "store_bench": "pyrmq-store",
    "load": "pyrmq-nameserver",
}
# Student's t for 95 %, from two degrees of freedom on.
STUDENT = [
    *(4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201),
    *(2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080),
    *(2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045),
]
FEWEST_GROUPS, NARROW, SLOWER = 5, 0.03, 0.97
START_S = 120
TOPIC = "bench-producer"
"""Topic of the loads in Python."""

Figures = dict[str, Any]


class Side:
    """One checkout, and its running programs."""

    def __init__(self, root: Path) -> None:
        """Measure the build in this directory."""
        self.root = root
        self.ready: dict[str, Any] = {}
        self.pid = 0
        self.load: subprocess.Popen[str] | None = None

    def python(self, *words: object) -> list[str]:
        """Return the command that runs its interpreter."""
        # -P: do not import from the current directory.
        return [str(self.root / ".venv/bin/python"), "-P", *map(str, words)]

    def example(self, name: str) -> str:
        """Return the path of a built example."""
        return str(self.root / "target/release/examples" / name)

    def output(self, *command: str) -> str:
        """Run a command and return its output."""
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """Return an environment in which its interpreter finds its own package."""
        return {**os.environ, "PYTHONPATH": str(self.root / "python")}

    @contextmanager
    def server(self, store: Path, *options: str) -> Iterator[float]:
        """Run name server and broker in one process; yield the seconds until they are ready."""
        command = self.python("-m", "pyrmq", "server", "--json", "--store", store)
        command += ["--listen-port", "0", "--name-server-port", "0", "--log-level", "error"]
        began = time.perf_counter()
        with subprocess.Popen(
            [*command, *options],
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                self.ready = json.loads(process.stdout.readline())
                self.pid = process.pid
                yield time.perf_counter() - began
            finally:
                process.terminate()
                process.wait(START_S)

    @contextmanager
    def loaded(self, program: str) -> Iterator[None]:
        """Run a load program on the server."""
        words = [self.ready["broker"]] if program.endswith("broker_load") else []
        with subprocess.Popen(
            [program, *words, self.ready["name_server"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as self.load:
            try:
                yield
            finally:
                self.load.kill()

    def ask(self, command: str) -> Figures:
        """Send one command to the running load."""
        assert self.load is not None
        assert self.load.stdin is not None
        assert self.load.stdout is not None
        self.load.stdin.write(command + "\n")
        self.load.stdin.flush()
        line = self.load.stdout.readline()
        if not line:
            raise RuntimeError(f"the load of {self.root} ended in `{command}`")
        answer: Figures = json.loads(line)
        return answer

    def python_load(self, name: str) -> Figures:
        """Run a load of this checkout's `benches/loads.py` on the server."""
        program = self.python(HERE / "benches/loads.py", name, self.ready["name_server"])
        return {"figure": float(self.output(*program))}


@dataclass(frozen=True)
class Server:
    """The server of a row.

    Attributes:
        options: options of `pyrmq server`.
        load: example of each side that runs on it.
        shared: both sides use this checkout's load, which only sends requests.
        once: each start yields one figure.
        prepare: called before the first turn.
    """

    options: Sequence[str] = ()
    load: str = "broker_load"
    shared: bool = False
    once: bool = False
    prepare: Callable[[Side], object] | None = None

    @contextmanager
    def started(self, side: Side, home: Path) -> Iterator[None]:
        """Run the server for one side."""
        load = (Side(HERE) if self.shared else side).example(self.load)
        with side.server(home, *self.options), side.loaded(load):
            if self.prepare:
                self.prepare(side)
            yield


@dataclass(frozen=True)
class Row:
    """One line of the table; the same turns measure all rows of one load and server.

    Attributes:
        what: text of the row.
        load: function that measures a side.
        figure: name of the load's figure.
        less: a smaller figure is better.
        server: server that runs meanwhile; None if the load starts what it needs.
    """

    what: str
    load: Callable[[Side], Figures]
    figure: str
    less: bool
    server: Server | None = None


def _fill(side: Side) -> Figures:
    return side.python_load("produce1k")


def _asked(side: Side, command: str) -> Figures:
    return side.ask(command)


def _python(side: Side, load: str) -> Figures:
    return side.python_load(load)


def _store(side: Side, row: str) -> Figures:
    with tempfile.TemporaryDirectory(prefix="pyrmq-turns-") as home:
        program = [side.example("store_bench"), "--rows", row, "--rounds", "1"]
        program += ["--queues", "1000", f"{home}/store"]
        lines = [json.loads(line) for line in side.output(*program).splitlines()]
    return {line["row"]: statistics.median(line["values"]) for line in lines}


def _registrations(side: Side) -> Figures:
    """Measure 100 brokers that register 10,000 topics each: first, then with a newer version."""
    figures = {"first": side.ask("full 100 10000")["seconds"]}
    figures["newer"] = side.ask("again changed")["seconds"]
    figures["quiet"] = side.ask("paced 2000 2")["p99_us"]
    figures["storm"] = side.ask("storm 2000 2")["p99_us"]
    return figures


def _idle(side: Side) -> Figures:
    side.ask("idle 10000")
    status = Path(f"/proc/{side.pid}/status").read_text(encoding="utf-8")
    return {"kib": float(status.split("VmRSS:")[1].split()[0])}


def _starts(side: Side) -> Figures:
    with tempfile.TemporaryDirectory(prefix="pyrmq-turns-") as home:
        store = Path(home)
        with side.server(store) as first:
            _fill(side)
            os.kill(side.pid, signal.SIGKILL)
        with side.server(store) as killed:
            return {"first": first, "killed": killed}


MEMORY = Server()
DISK = Server(options=("--flush-disk-type", "SYNC_FLUSH"))
BACKLOG = Server(shared=True, prepare=_fill)
NAMES = Server(load="load", shared=True, prepare=partial(_asked, command="register 100 10000 10"))
EMPTY = Server(load="load", shared=True, once=True)

MORE, LESS = False, True
APPEND, PUT, SYNC, ROLL, OPEN = (
    partial(_store, row=row) for row in ("append", "put", "sync", "roll", "start")
)


def _of_python(what: str, load: str, *, less: bool = MORE) -> Row:
    return Row(what, partial(_python, load=load), "figure", less, MEMORY)


def _of_load(
    what: str, server: Server, command: str, figure: str = "per_second", *, less: bool = MORE
) -> Row:
    return Row(what, partial(_asked, command=command), figure, less, server)


def _of_store(what: str, load: Callable[[Side], Figures], figure: str, *, less: bool = LESS) -> Row:
    return Row(f"store: {what}", load, figure, less)


def _of_names(what: str, figure: str) -> Row:
    return Row(what, _registrations, figure, LESS, EMPTY)


ROWS = {
    "produce": _of_python("produce, 128 B, a second", "produce"),
    "callback": _of_python("produce with a callback each, a second", "callback"),
    "produce1k": _of_python("produce, 1 KiB, a second", "produce1k"),
    "produce10k": _of_python("produce, 10 KiB of JSON, a second", "produce10k"),
    "single": _of_python("produce with linger=0, a second", "single"),
    "lone": _of_python("send, one at a time, p50, µs", "lone", less=LESS),
    "threads": _of_python("send of 64 Python threads, a second", "threads"),
    "tasks": _of_python("asyncio, 1,000 tasks, a second", "tasks"),
    "groups": _of_python("asyncio, groups of 1,000, a second", "groups"),
    "send": _of_load("send of 64 Rust threads, 128 B, a second", MEMORY, "send 64 2 128"),
    "sync": _of_load("SYNC_FLUSH, 64 senders, 1 KiB, a second", DISK, "chained 64 2 1024"),
    "syncthreads": _of_load("SYNC_FLUSH, 64 threads, 1 KiB, a second", DISK, "send 64 2 1024"),
    "sync1": _of_load(
        "SYNC_FLUSH, one sender, p50, µs", DISK, "send 1 2 1024", "p50_us", less=LESS
    ),
    "pull": _of_load(
        "pull of a backlog, 1 KiB, B/s", BACKLOG, f"pull {TOPIC} 4 2 1 4", "bytes_per_second"
    ),
    "append": _of_store("append, 128 B, processor, ns each", APPEND, "append_128_cpu"),
    "append1k": _of_store("append, 1 KiB, processor, ns each", APPEND, "append_1024_cpu"),
    "appendrate": _of_store("append, 128 B, MB/s", APPEND, "append_128", less=MORE),
    "appendrate1k": _of_store("append, 1 KiB, MB/s", APPEND, "append_1024", less=MORE),
    "put": _of_store("put, 128 B, processor, ns each", PUT, "put_128_cpu"),
    "storesync1": _of_store("SYNC_FLUSH, one sender, p50, µs", SYNC, "sync_lone_p50"),
    "storesync": _of_store("SYNC_FLUSH, 64 senders, a second", SYNC, "sync_64_senders", less=MORE),
    "putp999": _of_store("put of 1 KiB, p99.9, µs", ROLL, "put_p999_without_roll"),
    "roll": _of_store("slowest put around a roll, µs", ROLL, "put_slowest_around_a_roll"),
    "open": _of_store("start after kill -9, 1 GB, s", OPEN, "start_after_kill"),
    "openclean": _of_store("start after a clean stop, 1 GB, s", OPEN, "start_clean"),
    "routes": _of_load("routes, a second", NAMES, "routes 2"),
    "wide": _of_load("routes of topics on 100 brokers, a second", NAMES, "wide 2"),
    "register": _of_names("100 brokers register 10,000 topics, first time, s", "first"),
    "newer": _of_names("100 brokers register a newer version, s", "newer"),
    "quiet": _of_names("route p99, 2,000/s, nobody registers, µs", "quiet"),
    "storm": _of_names("route p99, 2,000/s, all register, µs", "storm"),
    "idle": Row("10,000 idle connections, resident, KiB", _idle, "kib", LESS, EMPTY),
    "ready": Row("start of name server and broker, s", _starts, "first", LESS),
    "restart": Row("start of both after kill -9, 300 MB, s", _starts, "killed", LESS),
}


def interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean ratio; ratios within a group are correlated."""
    means = [statistics.fmean(map(math.log, ratios)) for ratios in groups]
    if len(means) < 3:
        return 0.0, math.inf
    degrees = min(len(means) - 1, len(STUDENT) + 1)
    half = STUDENT[degrees - 2] * statistics.stdev(means) / math.sqrt(len(means))
    middle = statistics.fmean(means)
    return math.exp(middle - half), math.exp(middle + half)


def verdict(low: float, high: float) -> str:
    """Return the verdict for an interval of the ratio."""
    if high < SLOWER:
        return "slower"
    return "ok" if low >= SLOWER else "not decided"


def _order(sides: tuple[Side, Side], number: int) -> tuple[Side, Side]:
    return sides if number % 2 else sides[::-1]


def _turn(sides: tuple[Side, Side], load: Callable[[Side], Figures], number: int) -> list[Figures]:
    """Return the figures of both sides, this checkout's first."""
    taken = {}
    for side in _order(sides, number):
        # No side should pay for the other side's pages.
        os.sync()
        taken[side] = load(side)
    return [taken[side] for side in sides]


def measured(
    sides: tuple[Side, Side], rows: Sequence[Row], turns: int, group: int
) -> list[list[list[Figures]]]:
    """Measure rows that share load and server; return groups of turns of both sides' figures."""
    load, server = rows[0].load, rows[0].server
    # A turn that starts everything it measures is a group of its own.
    group = group if server and not server.once else 1
    groups: list[list[list[Figures]]] = []
    while len(groups) * group < turns:
        with ExitStack() as stack:
            for side in _order(sides, len(groups)):
                home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-turns-"))
                if server:
                    stack.enter_context(server.started(side, Path(home) / "store"))
            if server and not server.once:
                # Warm up both servers.
                _turn(sides, load, 0)
            first = len(groups) * group
            groups.append([_turn(sides, load, first + number) for number in range(group)])
        if len(groups) >= FEWEST_GROUPS:
            intervals = [interval(_ratios(row, groups)) for row in rows]
            if all(high - low < NARROW for low, high in intervals):
                break
    return groups


def _ratios(row: Row, groups: list[list[list[Figures]]]) -> list[list[float]]:
    ratios = [[ours[row.figure] / other[row.figure] for ours, other in group] for group in groups]
    return [[1 / ratio for ratio in group] for group in ratios] if row.less else ratios


def line(row: Row, groups: list[list[list[Figures]]]) -> str:
    """Return a row's line of the table."""
    low, high = interval(_ratios(row, groups))
    turns = [turn for group in groups for turn in group]
    ours, other = (statistics.median(turn[side][row.figure] for turn in turns) for side in (0, 1))
    return (
        f"| {row.what} | {ours:,.6g} | {other:,.6g} | {math.sqrt(low * high):.3f} | "
        f"{low:.3f} to {high:.3f} | {len(turns)} in {len(groups)} | {verdict(low, high)} |"
    )


def main() -> int:
    """Build the load programs of both sides, measure the rows, print a table."""
    parser = argparse.ArgumentParser(
        prog="benches.turns",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rows:\n" + "\n".join(f"  {name:13} {row.what}" for name, row in ROWS.items()),
    )
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rows", default=",".join(ROWS), help="which, comma separated")
    parser.add_argument("--turns", type=int, default=30, help="turns of a row at most")
    parser.add_argument("--group", type=int, default=3, help="turns with the same servers")
    given = parser.parse_args()
    names = given.rows.split(",")
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        parser.error(f"unknown rows: {', '.join(unknown)}; known: {', '.join(ROWS)}")
    if given.group < 1 or given.turns < given.group * FEWEST_GROUPS:
        parser.error(f"--turns must be {FEWEST_GROUPS} times --group at least")
    sides = (Side(HERE), Side(given.other.resolve()))
    for side in sides:
        for example, package in EXAMPLES.items():
            command = ["cargo", "build", "--release", "--quiet", "-p", package]
            subprocess.run([*command, "--example", example], cwd=side.root, check=True)
    together: dict[object, list[Row]] = {}
    for name in names:
        row = ROWS[name]
        together.setdefault((row.load, row.server), []).append(row)
    print("| row | this | other | ratio | 95 % of its mean | turns | verdict |")
    print("|---|---|---|---|---|---|---|", flush=True)
    slower = False
    with kept_bytecode():
        for side in sides:
            side.output(*side.python("-m", "compileall", "-q", side.root / "python"))
        for rows in together.values():
            began = time.perf_counter()
            groups = measured(sides, rows, given.turns, given.group)
            print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            for row in rows:
                print(line(row, groups), flush=True)
                slower = slower or interval(_ratios(row, groups))[1] < SLOWER
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
