"""The name server's rows: ours and the real one under the same load, in turns.

The load is `crates/nameserver/examples/load.rs`, a separate process that `cargo` builds.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.ask import ask
from tests.interop.rocketmq import JavaNameServer
from tests.reference import frame as wire

from benches.e2e.generator import Load, build
from benches.e2e.rows import WARM_WINDOW_S, warm
from benches.e2e.servers import VERSION
from benches.row import Row
from benches.usage import cpu_seconds, resident_mib

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
BROKERS, TOPICS, WIDE = 100, 10_000, 10
IDLE = 10_000
REGISTER_PERIOD_S = 30.0
JAVA_HEAP_MB = 2048
GET_BROKER_CLUSTER_INFO = 106


@contextmanager
def ours() -> Iterator[tuple[str, int]]:
    """Run our name server; yield its address and process id."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        command = [sys.executable, "-m", "pyrmq", "nameserver", "--json", "--listen-port", "0"]
        command += ["--bind-address", "127.0.0.1", "--kv-config-path", f"{home}/kvConfig.json"]
        command += ["--log-level", "error"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield json.loads(server.stdout.readline())["name_server"], server.pid
            finally:
                server.terminate()
                server.wait(timeout=60)


@contextmanager
def apache() -> Iterator[tuple[str, int]]:
    """Run the real name server; yield its address and process id."""
    with JavaNameServer(VERSION, quick=False, heap_mb=JAVA_HEAP_MB) as names:
        yield names.address, names.pid


SIDES = {"ours": ours, "apache": apache}


NAMES = ("nameserver-start", "nameserver-routes", "nameserver-full", "nameserver-idle")
"""Parts that `--rows` accepts; `nameserver` runs all of them."""


def name_server_rows(names: set[str], rounds: int, seconds: int) -> Iterator[Row]:
    """Measure the parts of these names."""
    build("pyrmq-nameserver", "load")
    if "nameserver-start" in names:
        yield from _starts(rounds)
    if "nameserver-routes" in names:
        yield from _routes(rounds, seconds)
    if "nameserver-full" in names:
        yield from _full(rounds, seconds)
    if "nameserver-idle" in names:
        yield _idle()


def _starts(rounds: int) -> Iterator[Row]:
    row = Row(
        what="name server: start to first answer, minus an idle interpreter's",
        unit="ms",
        target="<= 50 ms",
        less_is_more=True,
    )
    rest = Row(
        what="name server: resident at rest, minus the interpreter",
        unit="MiB",
        target="<= 15 MiB",
        less_is_more=True,
    )
    # Our first start compiles the modules.
    _interpreter()
    with ours():
        pass
    for _ in range(rounds):
        bare, base = _interpreter()
        for name, side in SIDES.items():
            started = time.perf_counter()
            with side() as (address, pid):
                ask(address, wire.Frame(code=GET_BROKER_CLUSTER_INFO, version=513))
                took = (time.perf_counter() - started) * 1000
                time.sleep(1.0)
                own = name == "ours"
                row.add(name, took - (bare if own else 0))
                rest.add(name, resident_mib(pid) - (base if own else 0))
    yield from (row, rest)


def _interpreter() -> tuple[float, float]:
    """Return milliseconds and resident MiB of an interpreter that prints a word."""
    started = time.perf_counter()
    program = "import sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took = (time.perf_counter() - started) * 1000
        resident = resident_mib(process.pid)
        process.communicate(timeout=60)
    return took, resident


def _row(what: str, unit: str, target: str = "", *, less: bool = False) -> Row:
    return Row(what=what, unit=unit, target=target, less_is_more=less)


def _routes(rounds: int, seconds: int) -> Iterator[Row]:
    load = "16 connections, 16 in flight"
    rate = _row(f"routes, {load}", "/s", ">= 5 times")
    wide = _row(f"routes of a topic on {BROKERS} brokers", "/s", ">= 5 times")
    late = _row("route p99 at half of Apache's top rate", "µs", "<= a third", less=True)
    with ExitStack() as stack:
        loads: dict[str, tuple[Load, int]] = {}
        for name, side in SIDES.items():
            address, pid = stack.enter_context(side())
            loads[name] = stack.enter_context(Load("load", address)), pid
            loads[name][0].run(f"register {BROKERS} {TOPICS} {WIDE}")
        for row, command in ((rate, "routes"), (wide, "wide")):
            for name, (one, _) in loads.items():
                row.steady[name] = warm(_per_second, one, command)
            for _ in range(rounds):
                for name, (one, pid) in loads.items():
                    # Registrations expire after two minutes, and all turns take longer.
                    one.run("again same")
                    before = cpu_seconds(pid)
                    told = one.run(f"{command} {seconds}")
                    # The load runs a quarter longer; the beginning does not count.
                    cpu = (cpu_seconds(pid) - before) * 1e6 / max(1, told["answers"] * 1.25)
                    row.add(name, told["per_second"], cpu, server=pid)
            yield row
        half = rate.median("apache") / 2
        late.steady = dict(rate.steady)
        for _ in range(rounds):
            for name, (one, pid) in loads.items():
                one.run("again same")
                late.add(name, one.run(f"paced {half:.0f} {seconds}")["p99_us"], server=pid)
        yield late


def _per_second(load: Load, command: str) -> float:
    load.run("again same")
    return float(load.run(f"{command} {WARM_WINDOW_S}")["per_second"])


def _middle_us(load: Load) -> float:
    return float(load.run(f"paced 2000 {WARM_WINDOW_S}")["p50_us"])


def _full(rounds: int, seconds: int) -> Iterator[Row]:
    each = f"{BROKERS} brokers with {TOPICS:,} topics each"
    share = _row(f"{each} register every 30 s: share of a core", "%", "<= 10 %", less=True)
    first = _row(f"{each} register at once, the first time", "s", less=True)
    quiet = _row("route p99, 2,000/s, nobody registers", "µs", less=True)
    storm = _row("route p99, 2,000/s, all register", "µs", "<= 3 times the row above", less=True)
    for name, side in SIDES.items():
        with side() as (address, pid), Load("load", address) as load:
            first.add(name, load.run(f"full {BROKERS} {TOPICS}")["seconds"])
            load.run("again same")
            is_steady = warm(_middle_us, load)
            for row in (share, quiet, storm):
                row.steady[name] = is_steady
            for _ in range(rounds):
                before = cpu_seconds(pid)
                load.run("again same")
                spent = cpu_seconds(pid) - before
                share.add(name, spent / REGISTER_PERIOD_S * 100, server=pid)
            for _ in range(rounds):
                quiet.add(name, load.run(f"paced 2000 {seconds}")["p99_us"])
                storm.add(name, load.run(f"storm 2000 {seconds}")["p99_us"])
    yield from (first, share, quiet, storm)


def _idle() -> Row:
    row = Row(
        what=f"{IDLE:,} idle connections: resident",
        unit="MiB",
        target="<= 150 MiB",
        less_is_more=True,
    )
    for name, side in SIDES.items():
        with side() as (address, pid), Load("load", address) as load:
            opened = load.run(f"idle {IDLE}")["connections"]
            if opened < IDLE:
                print(f"  {name}: only {opened} connections (ulimit -n)", file=sys.stderr)
            host, port = address.rsplit(":", 1)
            with socket.create_connection((host, int(port)), 10):
                time.sleep(1.0)
                row.add(name, resident_mib(pid))
    return row
