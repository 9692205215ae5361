"""Rows of the hot window (`hotLogBytes`): our broker with its default beside one with 0, in turns.

Both brokers run at the same time on the same disk. A smaller `--scale` shortens the backlogs, and
the window with them: otherwise nothing would lie behind it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.interop.ask import ask, await_registered
from tests.reference import frame as wire

from benches.e2e.consumers.common import scaled
from benches.e2e.generator import build
from benches.e2e.page_cache import evict, log_files, read_from_disk, read_rate, resident_bytes
from benches.e2e.rivals import run_load
from benches.e2e.servers import Side
from benches.e2e.store_broker import (
    BODY,
    COLD_BACKLOG,
    COLD_TURNS,
    HOT_PER_S,
    SEGMENT,
    ColdPulls,
    broker_side,
    fill,
)
from benches.row import Row
from benches.usage import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.ours import OurBroker
    from tests.interop.rocketmq import JavaBroker

WINDOW = 1 << 30
"""The default of `hotLogBytes`, on machines with 8 GiB or more."""
SMALLEST_WINDOW = 64 << 20
BACKLOG = 2_000_000
"""Messages of 1 KiB that a drain reads."""
LATER = "bench-later"
BEFORE_KILL = 100_000
"""Messages that are sent before a broker is killed."""
LIMIT = 4 << 30
"""Bytes of log that both brokers keep while the resident page cache is measured."""
RECORD = 1200
"""Bytes of the log for a message of 1 KiB, rounded down."""
SETTLE_S = 2.0
GET_BROKER_RUNTIME_INFO = 28


def settings(scale: float) -> dict[str, dict[str, object]]:
    """Return the broker options of both sides by name."""
    ours: dict[str, object] = {}
    if scale < 1:
        ours["hotLogBytes"] = window(scale)
    return {"ours": ours, "without": {"hotLogBytes": 0}}


def window(scale: float) -> int:
    """Return the size of the hot window."""
    return min(WINDOW, max(SMALLEST_WINDOW, int(WINDOW * scale)))


def hot_window_rows(names: set[str], rounds: int, scale: float) -> Iterator[Row]:
    """Run the rows of these names; `scale` shortens a smoke run."""
    for name, work in ROWS.items():
        if name in names:
            yield from work(rounds, scale)


def drain_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure a consumer of ours that reads a backlog behind the window, and the disk alone."""
    count = scaled(BACKLOG, scale, 1000)
    drain = Row(
        name="hot-drain",
        what=f"drain of {count:,} messages of 1 KiB behind the hot window / the disk's read",
        unit="MB/s",
        target=">= 0.7 times",
        rival="disk",
    )
    without = Row(
        name="hot-drain-without",
        what="the same drain / by a broker without a hot window",
        unit="MB/s",
        target="reported",
        rival="without",
    )
    with ExitStack() as stack:
        sides = {}
        for name, own in settings(scale).items():
            address, broker = stack.enter_context(broker_side("ours", own))
            fill(address, count)
            stored = log_end(broker)
            # The backlog ends before the window.
            fill(address, (window(scale) + 2 * SEGMENT) // RECORD, LATER)
            side = Side(name=name, name_server=address, broker_pid=broker.pid)
            sides[name] = (side, broker, stored)
        for turn in range(rounds + 1):
            for name, (side, broker, stored) in sides.items():
                # Without the last one and the one that is prepared.
                files = log_files(broker.store_dir)[:-2]
                evict(files)
                alone = read_rate(files) / 1e6
                evict(files)
                before = cpu_seconds(broker.pid), read_from_disk(broker.pid)
                figures = run_load("pyrmq batches", side, count, BODY)
                spent = (cpu_seconds(broker.pid) - before[0]) * 1e6 / count
                read = read_from_disk(broker.pid) - before[1]
                if read < stored / 2:
                    raise RuntimeError(f"the drain was not cold: {read} of {stored} bytes read")
                # The first turn loads programs and classes.
                if turn:
                    rate = figures["figure"] * stored / count / 1e6
                    without.add(name, rate, spent, server=broker.pid)
                    without.client_us.setdefault(name, []).append(figures["cpu_us"])
                    if name == "ours":
                        drain.add("ours", rate, spent, server=broker.pid)
                        drain.add("disk", alone)
    yield from (drain, without)


def log_end(broker: OurBroker | JavaBroker) -> int:
    """Return the position at which a broker's log ends."""
    answer = ask(broker.address, wire.Frame(code=GET_BROKER_RUNTIME_INFO, version=407))
    return int(json.loads(answer.body or b"")["table"]["commitLogMaxOffset"])


def cold_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure sends on a schedule beside pulls of what lies behind the window."""
    text = f"{HOT_PER_S:,} sends of 1 KiB a second beside cold pulls"
    late = _row("hot-cold", f"{text}, p99 / without a hot window", "µs", "reported")
    share = _row("hot-cold-share", f"{text}: p99, of p99 alone", "times", "<= 1.5 times")
    pulled = _row("hot-cold-pulls", f"{text}: those pulls", "MB/s", "reported")
    pulled.less_is_more = False
    build("pyrmq-client", "broker_load")
    with ExitStack() as stack:
        # With fewer messages, a turn would read some of them twice, from memory.
        backlog = max(COLD_BACKLOG // 2, scaled(COLD_BACKLOG, scale))
        sides = {name: ColdPulls(stack, backlog, **own) for name, own in settings(scale).items()}
        for _ in range(COLD_TURNS * rounds):
            for name, pulls in sides.items():
                turn = pulls.turn()
                late.add(name, turn.beside, server=pulls.broker.pid)
                share.add(name, turn.beside / turn.alone)
                pulled.add(name, turn.pulled)
    yield from (late, share, pulled)


def start_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure how long a killed broker needs to be ready."""
    stored, sent = 2 * window(scale) // RECORD, scaled(BEFORE_KILL, scale, 1000)
    row = _row(
        "hot-start",
        f"start after kill -9, {stored * RECORD / 1e9:.1f} GB of log / without a hot window",
        "s",
        "reported",
    )
    with ExitStack() as stack:
        sides = {}
        for name, own in settings(scale).items():
            sides[name] = stack.enter_context(broker_side("ours", own))
            fill(sides[name][0], stored)
        for _ in range(rounds):
            for name, (address, broker) in sides.items():
                fill(address, sent)
                broker.kill()
                os.sync()
                began = time.perf_counter()
                broker.start()
                row.add(name, time.perf_counter() - began, server=broker.pid)
                await_registered(address, broker.address)
    yield row


def resident_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure how much of their files is in memory while both brokers keep as much log."""
    limit = max(2 * SEGMENT, int(LIMIT * scale))
    text = f"page cache of the log, of {limit / 1e9:.1f} GB kept"
    log = _row("hot-resident", f"{text} / without a hot window", "MiB", "reported")
    rest = _row("hot-resident-rest", "page cache of queue and index files", "MiB", "reported")
    with ExitStack() as stack:
        sides = {}
        for name, own in settings(scale).items():
            kept = {"storeMaxBytes": limit, "cleanResourceInterval": 1000}
            sides[name] = stack.enter_context(broker_side("ours", {**kept, **own}))
            fill(sides[name][0], limit // RECORD)
        for _ in range(rounds):
            for name, (address, broker) in sides.items():
                fill(address, limit // RECORD // 8)
                os.sync()
                # The window moves and old segments go some moments later.
                time.sleep(SETTLE_S)
                own_log = resident_bytes(broker.store_dir / "commitlog")
                log.add(name, own_log / 2**20, server=broker.pid)
                rest.add(name, (resident_bytes(broker.store_dir) - own_log) / 2**20)
    yield from (log, rest)


def _row(name: str, what: str, unit: str, target: str) -> Row:
    return Row(name=name, what=what, unit=unit, target=target, rival="without", less_is_more=True)


ROWS: dict[str, Callable[[int, float], Iterator[Row]]] = {
    "hot-drain": drain_rows,
    "hot-cold": cold_rows,
    "hot-start": start_rows,
    "hot-resident": resident_rows,
}
"""What `--rows` takes."""
