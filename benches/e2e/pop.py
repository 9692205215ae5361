"""Rows of POP: messages that are taken for a time, acknowledged, and brought back."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benches.row import Row
from benches.usage import cpu_seconds, resident_mib
from pyrmq import Admin, Producer, SimpleConsumer
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.driver import Driver

    from benches.e2e.servers import Side

THREADS = 32
QUEUES = 8
LONG_S = 600.0
"""Invisible time of what is in flight and must stay so."""
READY_S = 60.0
MAX_WARM_TURNS = 10
WARM_SPREAD = 0.05
"""Two turns that differ by less than this are alike."""
SETTLE_S = 30.0
IDLE_CPU = 0.05
"""Seconds of processor in a second, below which a server is idle."""


def pop_rows(sides: list[Side], driver: Driver, *, rounds: int, count: int) -> Iterator[Row]:
    """Measure a backlog that is popped and acknowledged: by Java's client, and by ours."""
    java = Row(
        name="pop-ack",
        what=f"Java push consumer by POP draining a backlog, {THREADS} threads",
        unit="msg/s",
        target=">= 2 times, a fifth of the CPU",
    )
    simple = Row(
        name="simple-consumer",
        what=f"the same: SimpleConsumer in Python, {THREADS} threads / Java client on its broker",
        unit="msg/s",
        target=">= 1 times",
    )
    for side in sides:
        _fill(side.name_server, "bench-pop", count)
    java.steady = _warm(sides, driver, count)
    # Its own client is not on the JVM, and its rival's figures are those of the other row.
    simple.steady = {"apache": java.steady["apache"]}
    for turn in range(rounds):
        for side in sides:
            rate, cpu = _java_drain(sides, side, driver, f"pop-{turn}", count)
            java.add(side.name, rate, cpu, server=side.broker_pid)
            if side.name == "apache":
                simple.add("apache", rate)
        own = next(side for side in sides if side.name == "ours")
        _settle(sides)
        rate = _drain(own.name_server, "bench-pop", f"simple-{turn}", count)
        simple.add("ours", rate, server=own.broker_pid)
    yield from (java, simple)


def _warm(sides: list[Side], driver: Driver, count: int) -> dict[str, bool]:
    """Drain in turns until each side's last two turns agree; return which sides' do.

    The JVMs compile for a long time.
    """
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    steady: dict[str, bool] = {}
    for turn in range(MAX_WARM_TURNS):
        for side in sides:
            rate, _ = _java_drain(sides, side, driver, f"warm-{turn}", count)
            rates[side.name].append(rate)
        lasts = {name: turns[-2:] for name, turns in rates.items()}
        steady = {
            name: len(pair) > 1 and max(pair) - min(pair) <= WARM_SPREAD * max(pair)
            for name, pair in lasts.items()
        }
        if all(steady.values()):
            return steady
    print("  the JVMs were not warm: their turns still differ", file=sys.stderr)
    return steady


def _settle(sides: list[Side]) -> None:
    """Wait until no server works on what the turn before left: check points, acknowledgements."""
    os.sync()
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        before = [cpu_seconds(side.broker_pid) for side in sides]
        time.sleep(1.0)
        spent = [cpu_seconds(side.broker_pid) for side in sides]
        if all(b - a <= IDLE_CPU for a, b in zip(before, spent, strict=True)):
            return


def _java_drain(
    sides: list[Side], side: Side, driver: Driver, group: str, count: int
) -> tuple[float, float]:
    """Drain one side once; return messages a second, and the server's CPU for each, in us."""
    with Admin(name_server=side.name_server) as admin:
        admin.set_consume_mode(group, "bench-pop", "pop")
    _settle(sides)
    before = cpu_seconds(side.broker_pid)
    result = driver.call(
        "bench.drain",
        namesrv=side.name_server,
        topic="bench-pop",
        group=group,
        count=count,
        threads=THREADS,
        timeout=300,
        pop=True,
    )
    cpu = (cpu_seconds(side.broker_pid) - before) * 1e6 / max(1, int(result["messages"]))
    if not result["whole"]:
        print(f"  {side.name}: only {result['messages']} of {count} came", file=sys.stderr)
    return float(result["perSecond"]), cpu


def in_flight_rows(count: int) -> Iterator[Row]:
    """Measure a broker of ours with `count` messages in flight.

    Its memory beyond what it had with the messages stored, the time from a kill until it is ready
    again, and how late messages come back.
    """
    text = f"{count:,} messages in flight"
    memory = Row(name="pop-memory", what=f"{text}: memory", unit="MiB", target="<= 200 MiB")
    ready = Row(name="pop-start", what=f"{text}: ready after kill -9", unit="s", target="<= 2 s")
    late = Row(
        name="pop-late",
        what=f"{text}: delivery behind the invisible time, p99",
        unit="s",
        target="<= 1.2 s",
    )
    for row in (memory, ready, late):
        row.less_is_more = True
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        with _server(home) as (server, address, _):
            _fill(address, "bench-flight", count)
            before = resident_mib(server.pid)
            _take(address, "bench-flight", "flight", count)
            memory.add("ours", resident_mib(server.pid) - before)
            yield memory
            late.add("ours", _lateness(address))
            yield late
            server.send_signal(signal.SIGKILL)
            server.wait()
        with _server(home) as (_, _, took):
            ready.add("ours", took)
    yield ready


@contextmanager
def _server(home: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """Run name server and broker on a store; yield the seconds until they were ready, too."""
    port = Path(home) / "port"
    wanted = port.read_text() if port.exists() else "0"
    command = [sys.executable, "-m", "pyrmq", "server", "--json", "--store", f"{home}/store"]
    command += ["--listen-port", "0", "--name-server-port", wanted]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            took = time.perf_counter() - started
            address = str(json.loads(line)["name_server"])
            port.write_text(address.rsplit(":", 1)[1])
            yield server, address, took
        finally:
            server.terminate()
            server.wait(timeout=READY_S)


def _fill(name_server: str, topic: str, count: int) -> None:
    """Write `count` messages of 128 bytes to all queues."""
    with Admin(name_server=name_server) as admin:
        admin.create_topic(topic, queues=QUEUES)
    with Producer(name_server=name_server, linger=0.005) as producer:
        futures = []
        for _ in range(count):
            futures.append(producer.send_async(topic, bytes(128)))
            if len(futures) >= 10_000:
                for future in futures:
                    future.result()
                futures.clear()
        for future in futures:
            future.result()


def _each_thread(work: object) -> None:
    assert callable(work)
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _drain(name_server: str, topic: str, group: str, count: int) -> float:
    """Receive and acknowledge `count` messages with one consumer; return messages per second."""
    done = 0
    lock = threading.Lock()
    with SimpleConsumer(name_server=name_server, group=group) as consumer:
        consumer.subscribe(topic)

        def work() -> None:
            nonlocal done
            while done < count:
                found = consumer.receive(32, invisible=60.0, wait=0.5)
                if found:
                    consumer.ack(found)
                    with lock:
                        done += len(found)

        began = time.perf_counter()
        _each_thread(work)
        return done / (time.perf_counter() - began)


def _take(name_server: str, topic: str, group: str, count: int) -> None:
    """Receive `count` messages and leave them in flight."""
    taken = 0
    lock = threading.Lock()
    with SimpleConsumer(name_server=name_server, group=group) as consumer:
        consumer.subscribe(topic)

        def work() -> None:
            nonlocal taken
            empty = 0
            while taken < count and empty < 10:
                found = consumer.receive(32, invisible=LONG_S, wait=0.5)
                empty = 0 if found else empty + 1
                with lock:
                    taken += len(found)

        _each_thread(work)
    if taken < count:
        print(f"  only {taken} of {count} are in flight", file=sys.stderr)


def _lateness(name_server: str) -> float:
    """Return by how much messages come late after their invisible time: p99, in seconds."""
    topic, group, invisible, count = "bench-late", "late", 2.0, 1000
    with (
        Producer(name_server=name_server) as producer,
        SimpleConsumer(name_server=name_server, group=group) as consumer,
    ):
        for number in range(count):
            producer.send(topic, str(number))
        consumer.subscribe(topic)
        due: dict[bytes, float] = {}
        late: list[float] = []
        deadline = time.monotonic() + 60
        while len(late) < count and time.monotonic() < deadline:
            try:
                found = consumer.receive(32, invisible=invisible, wait=1.0)
            except RmqError as error:
                print(f"  {error}", file=sys.stderr)
                continue
            now = time.time()
            again = [one for one in found if one.reconsume_times > 0]
            late += [now - due[one.body] for one in again if one.body in due]
            for one in found:
                _, popped_ms, invisible_ms = map(int, one.receipt.handle.split()[:3])
                due[one.body] = (popped_ms + invisible_ms) / 1000
            consumer.ack(again)
    return statistics.quantiles(late, n=100)[98]
