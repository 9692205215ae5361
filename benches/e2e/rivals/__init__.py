"""Compares our producer and consumers with their rivals in one run, in turns: `--rows rivals`.

Each load is a separate process, so that its CPU time and memory can be measured. All servers run at
the same time, idle except the one whose turn it is. All brokers acknowledge from memory, except
plain NATS, which confirms nothing.

Before its turns count, each side runs its load until two runs agree within 5 %: a JVM that still
compiles is several times slower than the broker that people run. The disk is synced before each
turn, so that no side pays for the other's pages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.driver import Driver

from benches.e2e.page_cache import DROP, can_be_fresh, make_fresh, make_held
from benches.e2e.rivals.latency import LATENCIES, RATE
from benches.e2e.rivals.plans import PLANS, Plan
from benches.e2e.rivals.receiving import BACKLOG
from benches.e2e.rivals.servers import NotAvailableError, kafka, nats
from benches.e2e.rows import warm
from benches.e2e.security import signed, tls
from benches.e2e.servers import VERSION, Side, apache, ours
from benches.open_loop import LIBRARY as HISTOGRAMS
from benches.open_loop import OpenLoop
from benches.report import row_line
from benches.row import Row
from benches.usage import cpu_seconds
from pyrmq import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[3]
LOAD_S = 900
MESSAGE_HEAD = 192
"""Bytes that a broker stores for a message beside its body, at most: record and queue unit."""
LIBRARIES = {
    "confluent": "confluent_kafka",
    "aiokafka": "aiokafka",
    "nats": "nats",
    "jetstream": "nats",
}
"""Modules that a rival's loads import."""


def rival_rows(
    rounds: int,
    scale: float = 1.0,
    names: set[str] | None = None,
    among: Sequence[Plan] = PLANS,
) -> Iterator[Row]:
    """Run these plans (default: all) whose servers are available; `scale` shortens a smoke run."""
    plans = [plan for plan in among if names is None or plan.name in names]
    with ExitStack() as stack:
        match = Match(stack, {server for plan in plans for server in plan.servers}, rounds, scale)
        for plan in plans:
            missing = [library for library in _libraries(plan) if find_spec(library) is None]
            if missing:
                print(f"not available: {plan.what}: {missing[0]} is not installed", file=sys.stderr)
            elif plan.memory == "fresh" and not can_be_fresh():
                print(f"not available: {plan.what}: only root empties {DROP}", file=sys.stderr)
            elif plan.servers <= match.servers.keys():
                row = match.play(plan)
                print(row_line(row), file=sys.stderr, flush=True)
                yield row


def _libraries(plan: Plan) -> Iterator[str]:
    """Yield the modules of the extra `bench` that a plan needs."""
    rival = plan.rival_load.split()[0]
    if rival in LIBRARIES:
        yield LIBRARIES[rival]
    if plan.is_open_loop:
        yield HISTOGRAMS


@contextmanager
def _side(started: AbstractContextManager[tuple[Side, float]]) -> Iterator[Side]:
    with started as (side, _):
        yield side


SERVERS: dict[str, Callable[[], AbstractContextManager[Side]]] = {
    "ours": lambda: _side(ours()),
    "tls": tls,
    "signed": signed,
    "apache": lambda: _side(apache()),
    "kafka": kafka,
    "nats": nats,
}


class Match:
    """The running servers, the Java client, and what is stored where."""

    def __init__(self, stack: ExitStack, servers: set[str], rounds: int, scale: float) -> None:
        """Start these servers, as far as they are available."""
        self.servers: dict[str, Side] = {}
        self._rounds, self._scale = rounds, scale
        self._stored: dict[str, int] = {}
        for name in SERVERS:
            if name in servers:
                try:
                    self.servers[name] = stack.enter_context(SERVERS[name]())
                except NotAvailableError as error:
                    print(f"not available: {name}: {error}", file=sys.stderr)
        self._stack = stack
        self._java: Driver | None = None

    @property
    def _driver(self) -> Driver:
        """The Java client, started by the first row that needs it."""
        if self._java is None:
            self._java = self._stack.enter_context(Driver(VERSION, quick=False, heap_mb=1024))
        return self._java

    def play(self, plan: Plan) -> Row:
        """Warm both sides, then measure them in turns."""
        rival = plan.rival_load.split()[0]
        row = Row(
            name=plan.name,
            what=plan.what,
            unit="µs" if plan.less else "msg/s",
            target=plan.target,
            less_is_more=plan.less,
            rival=rival,
            memory=plan.memory,
        )
        count = max(1000, int(plan.count * self._scale) // 1000 * 1000)
        sides = (
            ("ours", plan.our_load, self.servers[plan.our_server]),
            (rival, plan.rival_load, self.servers[plan.rival_server]),
        )

        def figure(load: str, side: Side) -> float:
            figures = self._run(load, side, count, plan.size)
            # The p99 of two windows hardly ever agrees, warm or not.
            return float(figures["latency"]["p50"] if plan.is_open_loop else figures["figure"])

        for name, load, side in sides:
            if plan.backlog:
                self._fill(side, count, plan.size)
            row.steady[name] = warm(figure, load, side)
        for _ in range(self._rounds):
            for name, load, side in sides:
                _prepare_memory(plan, count)
                before = cpu_seconds(side.broker_pid)
                figures = self._run(load, side, count, plan.size)
                spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / count
                row.add(name, figures["figure"], spent, server=side.broker_pid)
                row.client_us.setdefault(name, []).append(figures["cpu_us"])
                if "latency" in figures:
                    row.latencies.setdefault(name, []).append(figures["latency"])
                if "resident_mib" in figures:
                    row.resident_mib.setdefault(name, []).append(figures["resident_mib"])
        return row

    def _fill(self, side: Side, count: int, size: int) -> None:
        """Store a backlog of this many messages, or what of it is missing."""
        library = {"kafka": "confluent", "nats": "nats"}.get(side.name, "pyrmq")
        missing = count - self._stored.get(side.name, 0)
        if missing > 0:
            run_load(f"{library} fill", side, missing, size)
            self._stored[side.name] = count

    def _run(self, load: str, side: Side, count: int, size: int) -> dict[str, Any]:
        if load.startswith("java"):
            return _java(self._driver, side, load.removeprefix("java "), count, size)
        return run_load(load, side, count, size)


def _prepare_memory(plan: Plan, count: int) -> None:
    """Bring the page cache into the state of a plan; in any case sync the disk."""
    if plan.memory == "fresh":
        make_fresh()
    elif plan.memory == "held":
        make_held(count * (plan.size + MESSAGE_HEAD))
    else:
        os.sync()


def run_load(load: str, side: Side, count: int, size: int) -> dict[str, Any]:
    """Run one load in a separate process."""
    command = [sys.executable, "-m", "benches.e2e.rivals.load", load, side.name_server]
    done = subprocess.run(
        [*command, str(count), str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **side.environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LOAD_S,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _java(driver: Driver, side: Side, how: str, count: int, size: int) -> dict[str, Any]:
    """Run one load of the warmed-up Java client."""
    if how == "push" or how.startswith("latency"):
        return _java_receives(driver, side, how, count, size)
    result = driver.call_within(
        LOAD_S,
        "bench.sendAsync" if how == "async" else "bench.send",
        namesrv=side.name_server,
        topic="bench-rivals",
        threads=64,
        count=count,
        size=size,
        seconds=LOAD_S,
        warmup=2,
    )
    if result["failed"]:
        print(f"  Java: {result['failed']} sends failed", file=sys.stderr)
    return {
        "figure": result["perSecond"],
        "cpu_us": result["clientCpuSeconds"] * 1e6 / max(1, result["messages"]),
    }


def _java_receives(driver: Driver, side: Side, how: str, count: int, size: int) -> dict[str, Any]:
    group = f"bench-{uuid.uuid4().hex[:12]}"
    options: dict[str, object] = {"namesrv": side.name_server, "group": group, "count": count}
    figures: dict[str, Any] = {}
    if how == "push":
        result = driver.call_within(
            LOAD_S, "bench.drain", topic=BACKLOG, timeout=LOAD_S // 2, **options
        )
        figures["figure"] = result["perSecond"]
    else:
        topic = f"bench-latency-{uuid.uuid4().hex[:8]}"
        options |= {"count": LATENCIES, "rate": RATE, "size": size}
        if how.endswith("pop"):
            options["pop"] = True
            with Admin(name_server=side.name_server) as admin:
                admin.create_topic(topic)
                admin.set_consume_mode(group, topic, "pop")
        result = driver.call_within(LOAD_S, "bench.latency", topic=topic, **options)
        took, late = ([nanos / 1e9 for nanos in result[key]] for key in ("tookNanos", "lateNanos"))
        figures["latency"] = OpenLoop(took, late).summary()
        figures["figure"] = figures["latency"]["p99" if how.endswith("p99") else "p50"]
    if not result["whole"]:
        raise TimeoutError(f"only {result['messages']} of {count} messages came to Java")
    cpu = result["clientCpuSeconds"] * 1e6 / max(1, result["messages"])
    return {**figures, "cpu_us": cpu}
