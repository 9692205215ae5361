"""The store within a whole broker: fsyncs, pulls, cold reads, starts.

The load is `crates/client/examples/broker_load.rs`, a separate process. `cargo` builds it, and
`crates/store/examples/store_bench/`, which fills the stores that are only opened.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.interop.ask import await_registered
from tests.interop.driver import Driver, DriverError
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker, JavaNameServer

from benches.e2e.generator import Load, binary, build
from benches.e2e.page_cache import evict, log_files, read_from_disk
from benches.e2e.rows import WARM_WINDOW_S, warm
from benches.e2e.servers import JAVA_STORE, MEASURED_STORE, VERSION
from benches.row import Row
from benches.usage import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
SIDES = ("ours", "apache")
PARTS = ("storesync", "storepull", "storecold", "storerestart", "storestart")
"""Parts that `--rows` accepts; `store` runs all of them."""

DEFAULT_STORE = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
BODY = 1024
QUEUES = 4
HOT_PER_S = 1000
SEGMENT = 128 << 20
"""Bytes of a log file for cold pulls."""
COLD_SECONDS = 1
COLD_BACKLOG = 2_000_000
"""More messages than a turn's pulls read: messages read twice would be cached."""
COLD_TURNS = 3
"""Turns per round: each is short."""


def _build() -> None:
    build("pyrmq-client", "broker_load")
    build("pyrmq-store", "store_bench")


@contextmanager
def broker_side(
    name: str, properties: Mapping[str, object]
) -> Iterator[tuple[str, OurBroker | JavaBroker]]:
    """Run one side; yield the name server's address and the broker."""
    with ExitStack() as stack:
        if name == "ours":
            names = stack.enter_context(OurNameServer())
            settings: dict[str, object] = {**MEASURED_STORE, **properties}
            broker: OurBroker | JavaBroker = OurBroker(names.address, properties=settings)
            stack.enter_context(broker)
            yield names.address, broker
            return
        java = stack.enter_context(JavaNameServer(VERSION, quick=False))
        settings = {**JAVA_STORE, **properties}
        broker = JavaBroker(VERSION, java.address, quick=False, heap_mb=1024, properties=settings)
        stack.enter_context(broker)
        # It says that it has started before its name server knows it.
        await_registered(java.address, broker.address)
        yield java.address, broker


def _row(what: str, unit: str, target: str = "", *, less: bool = False) -> Row:
    return Row(what=f"store: {what}", unit=unit, target=target, less_is_more=less)


def store_broker_rows(
    parts: set[str], rounds: int, seconds: int, *, backlog: int, queues: int, megabytes: int
) -> Iterator[Row]:
    """Measure the requested parts; yield each part's rows when they are measured.

    Args:
        parts: of ``PARTS``.
        rounds: turns of each side.
        seconds: of each turn of a load.
        backlog: messages of 1 KiB that the pulls read.
        queues: queues of the stores that are only opened.
        megabytes: size of their logs.
    """
    _build()
    if "storesync" in parts:
        yield from _sync(rounds, seconds)
    if "storepull" in parts:
        yield from _pull(rounds, seconds, backlog)
    if "storecold" in parts:
        yield from _cold(rounds, backlog)
    if "storerestart" in parts:
        yield _restart(rounds, backlog)
    if "storestart" in parts:
        yield from _start(rounds, queues, megabytes)


def _sync(rounds: int, seconds: int) -> Iterator[Row]:
    threads = _row("SYNC_FLUSH, 64 threads with our producer, 1 KiB", "msg/s", ">= 5 times")
    many = _row("SYNC_FLUSH, 64 senders of our producer without threads", "msg/s", ">= 5 times")
    lone = _row("SYNC_FLUSH, one sender of our producer, p50", "µs", less=True)
    disk = _row("write and fdatasync on the same disk, p50", "µs", less=True)
    share = _row("SYNC_FLUSH, one sender, of write and fdatasync", "times", "<= 1.3", less=True)
    with ExitStack() as stack:
        loads = {}
        for name in SIDES:
            address, broker = stack.enter_context(
                broker_side(name, {"flushDiskType": "SYNC_FLUSH"})
            )
            loads[name] = stack.enter_context(Load("broker_load", broker.address, address)), broker
        verbs = ((threads, "send 64"), (many, "chained 64"))
        for name, (load, _) in loads.items():
            for row, verb in verbs:
                row.steady[name] = warm(_figure, load, f"{verb} {WARM_WINDOW_S} {BODY}")
            lone_sends = f"send 1 {WARM_WINDOW_S} {BODY}"
            lone.steady[name] = warm(_figure, load, lone_sends, "p50_us")
        for _ in range(rounds):
            for name, (load, broker) in loads.items():
                for row, verb in verbs:
                    before = cpu_seconds(broker.pid)
                    told = load.run(f"{verb} {seconds} {BODY}")
                    if told["failed"]:
                        print(f"  {name}: {told['failed']} sends failed", file=sys.stderr)
                    spent = (cpu_seconds(broker.pid) - before) * 1e6 / told["answers"]
                    row.add(name, told["per_second"], spent, server=broker.pid)
                alone = _figure(load, f"send 1 {seconds} {BODY}", "p50_us")
                lone.add(name, alone)
                if name == "ours":
                    bare = load.run(f"fdatasync {broker.store_dir} 1000 {BODY + 200}")["p50_us"]
                    disk.add(name, bare)
                    share.add(name, alone / bare)
    yield from (threads, many, lone, disk, share)


def _figure(load: Load, command: str, name: str = "per_second") -> float:
    return float(load.run(command)[name])


def fill(address: str, count: int, topic: str = "bench-backlog") -> str:
    """Write a backlog; return its topic."""
    from pyrmq import Producer

    body = bytes(BODY)
    with Producer(name_server=address, group="bench-fill") as producer:
        for _ in range(count):
            producer.produce(topic, body)
        if not producer.flush(120):
            raise TimeoutError("the backlog is not written after 120 s")
        if failed := producer.stats().failed:
            raise RuntimeError(f"{failed} of {count} messages of the backlog were not stored")
    return topic


def _pull(rounds: int, seconds: int, backlog: int) -> Iterator[Row]:
    rate = _row("pull of a stored backlog, raw frames, 1 KiB", "MB/s", ">= 1000, or 0.7 of:")
    bare = _row("the same bytes over a bare socket", "MB/s")
    share = _row("pull, of the bare socket", "times", ">= 0.7")
    with ExitStack() as stack:
        loads = {}
        for name in SIDES:
            address, broker = stack.enter_context(broker_side(name, {}))
            topic = fill(address, backlog)
            loads[name] = stack.enter_context(Load("broker_load", broker.address, address)), broker
        for name, (load, _) in loads.items():
            pulls = f"pull {topic} {QUEUES} {WARM_WINDOW_S} 1 4"
            rate.steady[name] = warm(_figure, load, pulls, "bytes_per_second")
        for _ in range(rounds):
            for name, (load, broker) in loads.items():
                before = cpu_seconds(broker.pid)
                told = load.run(f"pull {topic} {QUEUES} {seconds} 1 4")
                spent = cpu_seconds(broker.pid) - before
                mine = told["bytes_per_second"] / 1e6
                # The load runs a quarter longer; the beginning does not count.
                cpu_us = spent * 1e6 / (told["answers"] * 32 * 1.25)
                rate.add(name, mine, cpu_us, server=broker.pid)
                if name == "ours":
                    size = told["bytes"] // max(1, told["answers"])
                    copied = load.run(f"copy {seconds} 1 {size}")["bytes_per_second"] / 1e6
                    bare.add(name, copied)
                    share.add(name, mine / copied)
    yield from (rate, bare, share)


class ColdPulls:
    """Sends on a schedule to a broker of ours, beside pulls of what the page cache does not have.

    Attributes:
        broker: the broker.
    """

    def __init__(self, stack: ExitStack, backlog: int, **settings: object) -> None:
        """Start a broker with these settings, and store a backlog that the pulls read."""
        properties = {"mappedFileSizeCommitLog": SEGMENT, **settings}
        address, self.broker = stack.enter_context(broker_side("ours", properties))
        self._topic = fill(address, backlog)
        # The backlog ends before the two files that stay cached.
        fill(address, 2 * SEGMENT // BODY, "bench-later")
        loads = [Load("broker_load", self.broker.address, address) for _ in range(2)]
        self._sender, self._puller = map(stack.enter_context, loads)
        self.alone()

    def alone(self) -> float:
        """Return the p99 of the sends while nobody pulls, in µs."""
        told = self._sender.run(f"paced {HOT_PER_S} {COLD_SECONDS} {BODY}")
        return float(told["p99_us"])

    def beside(self) -> tuple[float, float]:
        """Return the p99 of the sends beside pulls, and the MB/s of the pulls."""
        pulled: list[float] = []

        def pull() -> None:
            told = self._puller.run(f"pull {self._topic} {QUEUES} {COLD_SECONDS} 1 1")
            pulled.append(told["bytes_per_second"] / 1e6)

        thread = threading.Thread(target=pull)
        thread.start()
        late = self.alone()
        thread.join()
        return late, pulled[0]

    def turn(self) -> ColdTurn:
        """Measure the sends alone, beside cold pulls, and alone again.

        Raises:
            RuntimeError: The pulls were not cold.
        """
        before = self.alone()
        evict(log_files(self.broker.store_dir)[:-2])
        read, began = read_from_disk(self.broker.pid), time.perf_counter()
        late, pulled = self.beside()
        read = read_from_disk(self.broker.pid) - read
        read_rate = read / (time.perf_counter() - began) / 1e6
        if read_rate < pulled / 2:
            raise RuntimeError(
                f"pulls were not cold: {pulled:.0f} MB/s of them, {read_rate:.0f} from the disk"
            )
        # Compare with both neighbouring turns: a machine's speed changes from turn to turn.
        return ColdTurn((before + self.alone()) / 2, late, pulled, read_rate)


class ColdTurn(NamedTuple):
    """What one turn measured: p99 of sends in µs, and MB/s."""

    alone: float
    beside: float
    pulled: float
    read: float


def _cold(rounds: int, backlog: int) -> Iterator[Row]:
    hot = _row(f"{HOT_PER_S:,} sends of 1 KiB a second, p99, nobody pulls", "µs", less=True)
    cached = _row("the same beside pulls of cached data", "µs", less=True)
    cold = _row("the same beside pulls of data that is not cached", "µs", "<= 2 times", less=True)
    rate = _row("those pulls", "MB/s")
    disk = _row("what the disk reads for them", "MB/s")
    share = _row("p99 beside cold pulls, of p99 alone", "times", "<= 2", less=True)
    with ExitStack() as stack:
        pulls = ColdPulls(stack, max(backlog, COLD_BACKLOG))
        os.sync()
        for _ in range(COLD_TURNS * rounds):
            turn = pulls.turn()
            hot.add("ours", turn.alone)
            cold.add("ours", turn.beside, server=pulls.broker.pid)
            rate.add("ours", turn.pulled)
            disk.add("ours", turn.read)
            share.add("ours", turn.beside / turn.alone)
            pulls.beside()
            cached.add("ours", pulls.beside()[0])
    yield from (hot, cached, cold, rate, disk, share)


def _restart(rounds: int, backlog: int) -> Row:
    """Measure from the start of a killed broker to a Java client's first acknowledged send."""
    row = _row("start after kill -9 to a Java client's first send", "s", ">= 5 times", less=True)
    with ExitStack() as stack:
        driver = stack.enter_context(Driver(VERSION, quick=False))
        for name in SIDES:
            with broker_side(name, {}) as (address, broker):
                fill(address, backlog)
                with driver.producer(address, group=f"restart-{name}") as producer:
                    driver.send(producer, "bench-restart")
                    for _ in range(rounds):
                        row.add(name, _first_send(name, address, broker, driver, producer))
    return row


def _first_send(
    name: str, address: str, broker: OurBroker | JavaBroker, driver: Driver, producer: str
) -> float:
    with contextlib.suppress(DriverError):
        driver.send(producer, "bench-restart", count=100)
    broker.kill()
    shared = MEASURED_STORE if name == "ours" else JAVA_STORE
    settings = {**shared, "listenPort": broker.port}
    options: dict[str, Any] = {
        "store_dir": broker.store_dir,
        "port": broker.port,
        "properties": settings,
    }
    again = (
        OurBroker(address, **options)
        if name == "ours"
        else JavaBroker(VERSION, address, quick=False, heap_mb=1024, **options)
    )
    begin = time.perf_counter()
    starting = threading.Thread(target=again.start)
    starting.start()
    try:
        while True:
            try:
                driver.send(producer, "bench-restart")
            except DriverError:
                continue
            return time.perf_counter() - begin
    finally:
        starting.join()
        again.kill()
        broker.start()


def _start(rounds: int, queues: int, megabytes: int) -> Iterator[Row]:
    size = f"{megabytes:,} MB in {queues:,} queues"
    killed = _row(f"start of the broker after kill -9, {size}", "s", "<= 5 s at 10 GB", less=True)
    clean = _row(f"start of the broker after a clean stop, {size}", "s", "<= 5 s", less=True)
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        store = Path(home) / "store"
        command: list[str | Path] = [binary("store_bench"), "--queues", str(queues)]
        command += ["--mb", str(megabytes)]
        for turn in range(rounds):
            # The first start fills an empty store, the others add a few messages to each queue.
            with subprocess.Popen(
                [*command, "--more" if turn else "--fill", store],
                stdout=subprocess.PIPE,
                text=True,
            ) as filling:
                assert filling.stdout is not None
                filling.stdout.readline()
                filling.kill()
            for row in (killed, clean):
                broker = OurBroker("127.0.0.1:9", store_dir=store, properties=DEFAULT_STORE)
                begin = time.perf_counter()
                broker.start(timeout=300)
                row.add("ours", time.perf_counter() - begin)
                broker.stop(timeout=120)
    yield from (killed, clean)
