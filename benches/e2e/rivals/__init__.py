"""Compares our producer with its rivals in one run, in turns: `--rows rivals`.

Each load is a separate process, so that its CPU time and memory can be measured. All servers run at
the same time, idle except the one whose turn it is. All brokers acknowledge from memory, except
plain NATS, which confirms nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.driver import Driver

from benches.e2e.rivals.servers import NotAvailableError, kafka, nats
from benches.e2e.rows import Row
from benches.e2e.servers import VERSION, Side, apache, cpu_seconds, ours

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ROOT = Path(__file__).resolve().parents[3]
LOAD_S = 900
LIBRARIES = {
    "confluent": "confluent_kafka",
    "aiokafka": "aiokafka",
    "nats": "nats",
    "jetstream": "nats",
}
"""Modules that a rival's loads import."""
MILLION = 1_000_000


@dataclass(kw_only=True)
class Duel(Row):
    """One of our loads compared with one of theirs.

    Attributes:
        rival: the rival's name in `figures`.
        client_us: name to microseconds of client CPU per message.
        resident_mib: name to the client's largest resident memory.
    """

    rival: str
    client_us: dict[str, list[float]] = field(default_factory=dict)
    resident_mib: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self) -> float | None:
        """Return how many times better our median is."""
        if not {"ours", self.rival} <= self.figures.keys():
            return None
        ratio = self.median("ours") / self.median(self.rival)
        return 1 / ratio if self.less_is_more else ratio


@dataclass(frozen=True)
class Plan:
    """A row to measure: its loads and its target.

    Attributes:
        what: the row's name.
        our_load: a load of `load.py`.
        our_server: name of its server.
        rival_load: the rival's load; a name that begins with `java` is the Java client's.
        rival_server: name of the rival's server.
        count: messages of a turn.
        target: required ratio.
        size: bytes of a body.
        less: the figure is a time.
    """

    what: str
    our_load: str
    our_server: str
    rival_load: str
    rival_server: str
    count: int
    target: str
    size: int = 128
    less: bool = False


PLANS = (
    Plan("produce, 128 B / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", MILLION, ">= 1.5"),
    Plan("produce, 1 KiB / confluent-kafka", "pyrmq produce", "ours",
         "confluent produce", "kafka", 300_000, ">= 1.2", size=1024),
    Plan("lone send, p50 / confluent produce + flush", "pyrmq lone send", "ours",
         "confluent lone send", "kafka", 3_000, ">= 2", less=True),
    Plan("asyncio, groups of 1,000 / AIOProducer", "pyrmq groups", "ours",
         "confluent groups", "kafka", 200_000, ">= 3"),
    Plan("asyncio, 1,000 tasks / aiokafka send_and_wait", "pyrmq tasks", "ours",
         "aiokafka tasks", "kafka", 100_000, ">= 5"),
    Plan("asyncio, 1,000 tasks / nats-py publish (unconfirmed)", "pyrmq tasks", "ours",
         "nats tasks", "nats", 100_000, ">= 5"),
    Plan("asyncio, 1,000 tasks / nats-py JetStream publish", "pyrmq tasks", "ours",
         "jetstream tasks", "nats", 50_000, ">= 5"),
    Plan("single frames in flight / Java async on the Java broker", "pyrmq single frames", "ours",
         "java async", "apache", 200_000, ">= 10"),
    Plan("on the Java broker: 64 threads / Java, 64 threads", "pyrmq 64 threads", "apache",
         "java sync", "apache", 100_000, ">= 1.3"),
    Plan("on the Java broker: send_async / Java async", "pyrmq futures", "apache",
         "java async", "apache", 200_000, ">= 1.3"),
    Plan("on the Java broker: single frames in flight / Java async", "pyrmq single frames",
         "apache", "java async", "apache", 200_000, ">= 1.3"),
)  # fmt: skip


def rival_rows(rounds: int, scale: float = 1.0) -> list[Row]:
    """Run every plan whose servers are available; `scale` shortens a smoke run."""
    with ExitStack() as stack:
        servers = _start(stack)
        driver = stack.enter_context(Driver(VERSION, quick=False, heap_mb=1024))
        done: list[Row] = []
        for plan in PLANS:
            library = LIBRARIES.get(plan.rival_load.split()[0])
            if library is not None and find_spec(library) is None:
                print(f"not available: {plan.what}: {library} is not installed", file=sys.stderr)
            elif {plan.our_server, plan.rival_server} <= servers.keys():
                done.append(_duel(plan, servers, driver, rounds, scale))
                print(_line(done[-1]), file=sys.stderr)
        return done


def _start(stack: ExitStack) -> dict[str, Side]:
    """Start the available servers."""
    servers = {"ours": stack.enter_context(ours())[0], "apache": stack.enter_context(apache())[0]}
    rivals: dict[str, AbstractContextManager[Side]] = {"kafka": kafka(), "nats": nats()}
    for name, rival in rivals.items():
        try:
            servers[name] = stack.enter_context(rival)
        except NotAvailableError as error:
            print(f"not available: {name}: {error}", file=sys.stderr)
    return servers


def _duel(plan: Plan, servers: dict[str, Side], driver: Driver, rounds: int, scale: float) -> Duel:
    rival = plan.rival_load.split()[0]
    row = Duel(
        what=plan.what,
        unit="µs" if plan.less else "msg/s",
        target=plan.target,
        less_is_more=plan.less,
        rival=rival,
    )
    count = max(1000, int(plan.count * scale) // 1000 * 1000)
    for _ in range(rounds):
        for name, load, server in (
            ("ours", plan.our_load, plan.our_server),
            (rival, plan.rival_load, plan.rival_server),
        ):
            side = servers[server]
            before = cpu_seconds(side.broker_pid)
            if load.startswith("java"):
                figures = _java(driver, side, load.removeprefix("java "), count, plan.size)
            else:
                figures = _load(load, side, count, plan.size)
            spent = (cpu_seconds(side.broker_pid) - before) * 1e6 / count
            row.add(name, figures["figure"], spent)
            row.client_us.setdefault(name, []).append(figures["cpu_us"])
            if "resident_mib" in figures:
                row.resident_mib.setdefault(name, []).append(figures["resident_mib"])
    return row


def _load(load: str, side: Side, count: int, size: int) -> dict[str, float]:
    """Run one load in a separate process."""
    command = [sys.executable, "-m", "benches.e2e.rivals.load", load, side.name_server]
    done = subprocess.run(
        [*command, str(count), str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LOAD_S,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _java(driver: Driver, side: Side, how: str, count: int, size: int) -> dict[str, float]:
    """Run one load of the warmed-up Java client."""
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


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _line(row: Row) -> str:
    """Return one line of the table."""
    assert isinstance(row, Duel)
    sides = ("ours", row.rival)
    memory = [_median(row.resident_mib[side]) for side in sides if side in row.resident_mib]
    cells = [
        row.what,
        " / ".join(f"{row.median(side):,.0f}" for side in sides) + f" {row.unit}",
        f"{row.ratio():.2f}",
        row.target,
        " / ".join(f"{_median(row.client_us[side]):.2f}" for side in sides),
        " / ".join(f"{_median(row.cpu_us[side]):.2f}" for side in sides),
        " / ".join(f"{mib:.0f}" for mib in memory),
    ]
    return "| " + " | ".join(cells) + " |"


def rival_table(done: list[Row]) -> str:
    """Return the figures as a Markdown table: ours and theirs."""
    head = "| what | ours / theirs | ratio | target | client CPU, s a million | server CPU | MiB |"
    rows = [_line(row) for row in done if isinstance(row, Duel)]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])
