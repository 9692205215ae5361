"""This checkout beside another one, in turns: `python -m benches.turns OTHER [--rows a,b]`.

Both must be built as `make dev` does it. Each row's ratio is this checkout's figure over the
other's in the same turn, 1.1 being a tenth better; the order changes with each turn. Turns are
added until the 95 % interval of the mean ratio is narrower than 3 %, or `--turns` are done. A row
is slower when its whole interval lies below 0.97; the exit status says whether one is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "broker_load": "pyrmq-client",
    "store_bench": "pyrmq-store",
    "load": "pyrmq-nameserver",
}
PRODUCE = """
import sys, time
from pyrmq import Producer
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
body = bytes(size)
with Producer(name_server=address, group="turns") as producer:
    for round in range(2):
        began = time.perf_counter()
        for _ in range(count):
            producer.produce("turns", body)
        assert producer.flush(60)
        rate = count / (time.perf_counter() - began)
print(rate)
"""
LONE = """
import sys, time, statistics
from pyrmq import Producer
with Producer(name_server=sys.argv[1], group="turns") as producer:
    took = []
    for _ in range(4000):
        began = time.perf_counter()
        producer.send("turns-lone", b"x" * 128)
        took.append(time.perf_counter() - began)
print(1 / statistics.median(took))
"""
# Student's t for 95 %, by degrees of freedom. Behind the table stands the value for 10, which is
# too large by 9 % at most.
STUDENT = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
FEWEST_TURNS, NARROW, SLOWER = 5, 0.03, 0.97


@dataclass
class Side:
    """One checkout and what runs of it."""

    root: Path
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    loads: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def python(self, *words: str) -> list[str]:
        """Return the command that runs its interpreter."""
        return [str(self.root / ".venv" / "bin" / "python"), *words]

    def example(self, name: str) -> str:
        """Return the path of a built example."""
        return str(self.root / "target" / "release" / "examples" / name)

    def run(self, program: str, *words: object) -> float:
        """Run a Python program that prints one figure."""
        command = self.python("-c", program, *map(str, words))
        return float(_output(command, self.root))

    def ask(self, load: str, command: str) -> dict[str, Any]:
        """Give a running load one command."""
        process = self.loads[load]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root / "python")}


def _output(command: list[str], root: Path) -> str:
    done = subprocess.run(
        command, cwd=root, env=_environment(root), check=True, capture_output=True, text=True
    )
    return done.stdout


@contextmanager
def _serving(side: Side, name: str, home: Path, *options: str) -> Iterator[None]:
    """Run name server and broker of a side in one process."""
    command = side.python("-m", "pyrmq", "server", "--json", "--store", str(home / name))
    command += ["--listen-port", "0", "--name-server-port", "0", "--log-level", "error", *options]
    with ExitStack() as stack:
        process = subprocess.Popen(
            command, cwd=side.root, env=_environment(side.root), stdout=subprocess.PIPE, text=True
        )
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        assert process.stdout is not None
        side.servers[name] = json.loads(process.stdout.readline())
        words = [side.servers[name]["broker"], side.servers[name]["name_server"]]
        side.loads[name] = stack.enter_context(_load(side.example("broker_load"), *words))
        yield


@contextmanager
def _load(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _produce(side: Side, size: int, count: int) -> float:
    return side.run(PRODUCE, side.servers["memory"]["name_server"], count, size)


def _rate(side: Side, server: str, command: str) -> float:
    return float(side.ask(server, command)["per_second"])


def _pull(side: Side) -> float:
    told = side.ask("memory", "pull turns 4 2 1 4")
    return float(told["bytes_per_second"])


def _append(side: Side, size: int) -> float:
    """Messages a second of the putting thread's processor time."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-turns-") as home:
        command = [side.example("store_bench"), "--rows", "append", "--rounds", "1", f"{home}/s"]
        lines = [json.loads(line) for line in _output(command, side.root).splitlines()]
    values = {line["row"]: line["values"][0] for line in lines}
    return 1e9 / float(values[f"append_{size}_cpu"])


ROWS: dict[str, tuple[str, Callable[[Side], float]]] = {
    "produce": ("produce and flush, 128 B", partial(_produce, size=128, count=400_000)),
    "produce1k": ("produce and flush, 1 KiB", partial(_produce, size=1024, count=150_000)),
    "lone": (
        "one send at a time, inverse p50",
        lambda side: side.run(LONE, side.servers["memory"]["name_server"]),
    ),
    "send": ("64 threads, 128 B", partial(_rate, server="memory", command="send 64 2 128")),
    "sync": ("SYNC_FLUSH, 64 senders", partial(_rate, server="disk", command="chained 64 2 1024")),
    "sync1": ("SYNC_FLUSH, one sender", partial(_rate, server="disk", command="send 1 2 1024")),
    "pull": ("pull of a stored backlog", _pull),
    "append": ("append of batches, 128 B, processor time", partial(_append, size=128)),
    "append1k": ("append of batches, 1 KiB, processor time", partial(_append, size=1024)),
    "routes": ("routes", partial(_rate, server="names", command="routes 2")),
}


@contextmanager
def _ready(side: Side, home: Path) -> Iterator[None]:
    """Start the side's servers, with a backlog and with registered brokers."""
    with ExitStack() as stack:
        for name, options in (("memory", []), ("disk", ["--flush-disk-type", "SYNC_FLUSH"])):
            stack.enter_context(_serving(side, name, home, *options))
        _produce(side, size=1024, count=200_000)
        stack.enter_context(_serving(side, "names", home))
        address = side.servers["names"]["name_server"]
        side.loads["names"] = stack.enter_context(_load(side.example("load"), address))
        side.ask("names", "register 100 10000 10")
        yield


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean ratio, of ratios that are log-normal."""
    logs = [math.log(ratio) for ratio in ratios]
    if len(logs) < 3:
        return 0.0, math.inf
    half = STUDENT.get(len(logs) - 1, 2.228)
    half *= statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(mean - half), math.exp(mean + half)


def compare(sides: tuple[Side, Side], row: str, turns: int) -> bool:
    """Measure one row; print it; return whether this checkout is slower."""
    what, measure = ROWS[row]
    ratios: list[float] = []
    figures: list[float] = []
    # The first turn warms both.
    for turn in range(turns + 1):
        taken = {}
        for side in sides if turn % 2 else sides[::-1]:
            os.sync()
            taken[side.root] = measure(side)
        if turn == 0:
            continue
        ratios.append(taken[sides[0].root] / taken[sides[1].root])
        figures.append(taken[sides[0].root])
        low, high = interval(ratios)
        if turn >= FEWEST_TURNS and high - low < NARROW:
            break
    slower = high < SLOWER
    middle, verdict = statistics.median(ratios), "slower" if slower else "ok"
    print(
        f"| {what} | {statistics.median(figures):,.0f} | {middle:.3f} | "
        f"{low:.3f} to {high:.3f} | {len(ratios)} | {verdict} |",
        flush=True,
    )
    return slower


def main() -> int:
    """Build the load programs of both sides, measure the rows, print a table."""
    parser = argparse.ArgumentParser(prog="benches.turns", description=__doc__)
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    parser.add_argument("--turns", type=int, default=30, help="turns of a row at most")
    given = parser.parse_args()
    unknown = [row for row in given.rows.split(",") if row not in ROWS]
    if unknown:
        parser.error(f"unknown rows: {', '.join(unknown)}; known: {', '.join(ROWS)}")
    sides = (Side(HERE), Side(given.other.resolve()))
    for side in sides:
        for example, package in EXAMPLES.items():
            command = ["cargo", "build", "--release", "--quiet", "-p", package]
            subprocess.run([*command, "--example", example], cwd=side.root, check=True)
    print("| row | this, a second | ratio, median | 95 % of its mean | turns | verdict |")
    print("|---|---|---|---|---|---|")
    with ExitStack() as stack:
        for number, side in enumerate(sides):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-turns-")))
            stack.enter_context(_ready(side, home / str(number)))
        slower = [row for row in given.rows.split(",") if compare(sides, row, given.turns)]
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
