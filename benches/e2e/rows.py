"""The rows of `make bench`: each runs both sides in turns and keeps every figure."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, ParamSpec

from benches.e2e.servers import Side, ours
from benches.row import Row
from benches.usage import cpu_seconds, resident_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.interop.driver import Driver

Arguments = ParamSpec("Arguments")

WARM_WINDOW_S = 2
WARM_SHARE = 0.05
"""Two windows agree if they differ by at most this share."""

warm_limit_s = 60.0
"""A load that is not steady after this time and three windows counts as it is. A quick run allows
15 s."""

MATCHES = 100
"""One message in this number meets the condition of `java_filters`."""


def _with_cpu(
    side: Side,
    driver: Driver,
    command: str,
    **arguments: Any,  # noqa: ANN401 - handed on
) -> tuple[dict[str, Any], float]:
    """Run a driver command on a side; return result and microseconds of server CPU per message."""
    before = cpu_seconds(side.broker_pid)
    result: dict[str, Any] = driver.call(command, namesrv=side.name_server, **arguments)
    spent = cpu_seconds(side.broker_pid) - before
    return result, spent * 1e6 / max(1.0, float(result["messages"]))


def java_sends(
    sides: list[Side],
    driver: Driver,
    *,
    rounds: int,
    seconds: int,
    threads: int,
    batch: int,
    row: Row,
    account: Mapping[str, str] | None = None,
) -> Row:
    """Measure the Java client sending synchronously, one message or one batch at a time.

    `account` is the user that it signs for, as `accessKey` and `secretKey`.
    """

    def send(side: Side, seconds: int) -> tuple[float, float]:
        result, cpu = _with_cpu(
            side,
            driver,
            "bench.send",
            topic=f"bench-{threads}-{batch}",
            threads=threads,
            batch=batch,
            seconds=seconds,
            warmup=0,
            **(account or {}),
        )
        if result["failed"]:
            print(f"  {side.name}: {result['failed']} sends failed", file=sys.stderr)
        return result["perSecond"], cpu

    def rate(side: Side) -> float:
        return send(side, WARM_WINDOW_S)[0]

    for side in sides:
        row.steady[side.name] = warm(rate, side)
    for _ in range(rounds):
        for side in sides:
            # No side should pay for the other side's pages.
            os.sync()
            row.add(side.name, *send(side, seconds), server=side.broker_pid)
    return row


def warm(
    run: Callable[Arguments, float], *arguments: Arguments.args, **named: Arguments.kwargs
) -> bool:
    """Run a load until the figures of two windows agree; return whether they did.

    A JVM that still compiles is several times slower than the server that people run. A window has
    as many runs as its time needs, and at least one.
    """

    def window() -> float:
        figures: list[float] = []
        began = time.monotonic()
        while not figures or time.monotonic() - began < WARM_WINDOW_S:
            figures.append(run(*arguments, **named))
        return statistics.median(figures)

    limit = time.monotonic() + warm_limit_s
    before = window()
    for number in itertools.count():
        now = window()
        if abs(now - before) <= WARM_SHARE * max(now, before):
            return True
        before = now
        if number and time.monotonic() >= limit:
            break
    print(f"  not steady after {number + 2} windows", file=sys.stderr)
    return False


def java_drains(sides: list[Side], driver: Driver, *, rounds: int, count: int, row: Row) -> Row:
    """Measure a new group's Java push consumer reading a backlog written in batches."""
    for side in sides:
        written = 0
        while written < count:
            result = driver.call(
                "bench.send",
                namesrv=side.name_server,
                topic="bench-drain",
                threads=8,
                batch=32,
                seconds=60,
                warmup=0,
                count=count - written,
            )
            written += int(result["messages"])
    return _drained(sides, driver, rounds, row, topic="bench-drain", count=count, timeout=120)


def _drained(
    sides: list[Side],
    driver: Driver,
    rounds: int,
    row: Row,
    *,
    scanned: int = 1,
    **arguments: Any,  # noqa: ANN401 - handed on
) -> Row:
    """Let a new group's Java push consumer read a topic in each turn.

    `scanned`: messages that the broker looks at for each one that comes.
    """
    groups = itertools.count()

    def drain(side: Side) -> tuple[float, float]:
        group = f"drain-{arguments['topic']}-{next(groups)}"
        result, cpu = _with_cpu(side, driver, "bench.drain", group=group, **arguments)
        if not result["whole"]:
            came, count = result["messages"], arguments["count"]
            print(f"  {side.name}: only {came} of {count} came", file=sys.stderr)
        return result["perSecond"] * scanned, cpu / scanned

    def rate(side: Side) -> float:
        return drain(side)[0]

    for side in sides:
        row.steady[side.name] = warm(rate, side)
    for _ in range(rounds):
        for side in sides:
            os.sync()
            row.add(side.name, *drain(side), server=side.broker_pid)
    return row


def java_filters(sides: list[Side], driver: Driver, *, rounds: int, count: int) -> Row:
    """Measure a Java push consumer whose SQL92 condition 1 of 100 messages meets.

    The figures are messages that the broker looks at.
    """
    from pyrmq import Admin, Message, Producer

    row = Row(
        name="sql",
        what="SQL92, 1 of 100 messages matches, Java push consumer: messages scanned",
        unit="msg/s",
        target=">= 3 times",
    )
    count = count // MATCHES * MATCHES
    body = bytes(128)
    for side in sides:
        with Admin(name_server=side.name_server) as admin:
            deadline = time.monotonic() + 60
            while not admin.cluster() and time.monotonic() < deadline:
                time.sleep(0.1)
            admin.create_topic("bench-sql", queues=8)
        with Producer(name_server=side.name_server) as producer:
            for first in range(0, count, 1000):
                numbers = range(first, min(first + 1000, count))
                producer.send_batch(
                    "bench-sql",
                    [
                        Message("bench-sql", body, properties={"rest": str(number % MATCHES)})
                        for number in numbers
                    ],
                )
    return _drained(
        sides,
        driver,
        rounds,
        row,
        scanned=MATCHES,
        topic="bench-sql",
        count=count // MATCHES,
        sql=f"rest BETWEEN {MATCHES - 1} AND {MATCHES}",
        timeout=300,
    )


def start_rows(rounds: int) -> Iterator[Row]:
    """Measure name server and broker in one process: time to ready, memory at rest."""
    what = "name server + broker in one process: "
    ready = Row(name="start", what=f"{what}ready", unit="ms", target="<= 100 ms")
    rest = Row(name="start-memory", what=f"{what}resident at rest", unit="MiB", target="<= 60 MiB")
    # The first start compiles the modules.
    with ours():
        pass
    for _ in range(rounds):
        with ours() as (side, took):
            ready.add("ours", took)
            time.sleep(1.0)
            rest.add("ours", resident_mib(side.broker_pid))
    yield from (ready, rest)


def import_time(rounds: int) -> Row:
    """Measure `import pyrmq`, minus an interpreter that imports nothing."""
    row = Row(name="import", what="`import pyrmq`", unit="ms", target="<= 100 ms")
    for turn in range(rounds + 1):
        spent = []
        for program in ("pass", "import pyrmq; pyrmq.Producer; pyrmq.PullConsumer"):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
            spent.append((time.perf_counter() - started) * 1000)
        # The first turn compiles the modules.
        if turn:
            row.add("ours", spent[1] - spent[0])
    return row


def newest_wheel(root: Path) -> Path | None:
    """Return the wheel that `make wheel` built last in dist/, if there is one."""
    wheels = sorted((root / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    return wheels[-1] if wheels else None


def wheel_size(root: Path) -> Row | None:
    """Return the size of the wheel that `make wheel` built in dist/, if it exists."""
    wheel = newest_wheel(root)
    if wheel is None:
        return None
    row = Row(name="wheel", what="wheel", unit="MB", target="<= 6 MB")
    row.add("ours", wheel.stat().st_size / 1e6)
    return row


def python_sends(sides: list[Side], *, rounds: int, count: int, size: int) -> Row:
    """Measure our Python producer with its own batches on both brokers."""
    from pyrmq import Producer

    what = f"pyrmq producer, send_batch, {size} B"
    row = Row(name=f"python-{size}", what=what, unit="msg/s", target="(goal: 600,000)")
    body = bytes(size)
    for turn in range(rounds + 1):
        for side in sides:
            os.sync()
            with Producer(name_server=side.name_server, group=f"bench-python-{turn}") as producer:
                producer.send("bench-python", body)
                started = time.perf_counter()
                producer.send_batch("bench-python", [body] * count)
                if turn:
                    took = time.perf_counter() - started
                    row.add(side.name, count / took, server=side.broker_pid)
    return row
