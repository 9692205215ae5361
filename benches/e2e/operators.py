"""What operators and tests wait for: commands, a scrape of a large broker, clusters of tests.

The rows have targets and no rival. They measure what tests bound by the work that it takes, because
a time bounded in a test would also be the machine's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.wire import Connection

from benches.e2e.rows import newest_wheel
from benches.e2e.servers import ours
from benches.row import Row
from pyrmq import Admin, Producer
from pyrmq.codes import RequestCode
from pyrmq.server.metrics import exposition
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERBS = (
    # By default they take two samples a second apart.
    "nameserver status --interval 0.001",
    "broker status --interval 0.001",
    *("topic list", "group list", "message query t k"),
)
RUNS = 20
"""Runs of a verb for one p95."""
TOPICS, GROUPS = 1000, 200
ROOT = Path(__file__).resolve().parents[2]


def operator_rows(names: set[str], rounds: int) -> Iterator[Row]:
    """Run the rows of these names."""
    for name, work in ROWS.items():
        if name in names:
            yield from work(rounds)


def _row(what: str, unit: str, target: str) -> Row:
    return Row(what=what, unit=unit, target=target, less_is_more=True)


def verb_rows(rounds: int) -> Iterator[Row]:
    """Measure commands that ask one server, with their process's start.

    Their processor time is that of the sources. Their time by the clock is that of the wheel in
    dist/, as people install it; without a wheel it is left out.
    """
    wheel = newest_wheel(ROOT)
    if wheel is None:
        print("left out: verbs by the clock; `make wheel` makes a wheel in dist/", file=sys.stderr)
    else:
        # It may be older than the sources.
        built = time.strftime("%Y-%m-%d %H:%M", time.localtime(wheel.stat().st_mtime))
        print(f"verbs by the clock: of {wheel.name}, built {built}", file=sys.stderr)
    with ours() as (side, _):
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic("t", queues=2)
        with Producer(name_server=side.name_server) as producer:
            producer.send("t", b"x", keys="k")
        yield from _processor_rows(side.name_server, rounds)
        if wheel is not None:
            yield from clock_rows(wheel, side.name_server, rounds)


def _processor_rows(name_server: str, rounds: int) -> Iterator[Row]:
    for verb in VERBS:
        row = _row(f"`pyrmq {verb}`: processor time", "ms", "<= 150 ms")
        command = [sys.executable, "-m", "pyrmq", *verb.split(), "-n", name_server]
        # The first turn compiles the modules.
        for turn in range(rounds + 1):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if turn:
                row.add("ours", (used.ru_utime + used.ru_stime) * 1000)
        yield row


def clock_rows(wheel: Path, name_server: str, rounds: int, runs: int = RUNS) -> Iterator[Row]:
    """Measure the time of each verb by the clock, p95, from a wheel in an empty environment."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        program = _installed(wheel, Path(home))
        # Else the sources would be found before what is installed.
        environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
        for verb in VERBS:
            row = _row(f"`pyrmq {verb}` from an installed wheel: p95", "ms", "<= 150 ms")
            for _ in range(rounds):
                took = []
                for _ in range(runs):
                    began = time.perf_counter()
                    subprocess.run(
                        [program, *verb.split(), "-n", name_server],
                        cwd=home,
                        env=environment,
                        stdout=subprocess.DEVNULL,
                        check=True,
                        timeout=60,
                    )
                    took.append((time.perf_counter() - began) * 1000)
                row.add("ours", statistics.quantiles(took, n=20, method="inclusive")[-1])
            yield row


def _installed(wheel: Path, home: Path) -> Path:
    """Install only the wheel into an environment of its own; return the command."""
    binaries = home / "venv" / "bin"
    install = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--no-index"]
    for command in ([sys.executable, "-m", "venv", str(home / "venv")], [*install, str(wheel)]):
        subprocess.run(command, cwd=home, check=True, timeout=300)
    return binaries / "pyrmq"


def scrape_rows(rounds: int) -> Iterator[Row]:
    """Measure the processor time of a scrape of a broker that lists all of its topics."""
    row = _row(f"a scrape of {TOPICS:,} topics and {GROUPS} groups", "ms", "<= 50 ms")
    names = [f"topic-{number}" for number in range(TOPICS)]
    made = [
        {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": False}
        for name in names
    ]
    with cluster(metrics_top=TOPICS) as running:
        with (
            Connection(running.broker.address) as link,
            Producer(name_server=running.name_server) as producer,
        ):
            body = json.dumps({"topicConfigList": made}).encode()
            link.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
            for name in names:
                producer.produce(name, b"x")
            producer.flush(60)
            for number, name in enumerate(names):
                fields = {"consumerGroup": f"group-{number % GROUPS}", "topic": name}
                fields |= {"queueId": "0", "commitOffset": "0"}
                link.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        for turn in range(rounds + 1):
            began = time.thread_time()
            exposition(running.broker.figures())
            if turn:
                row.add("ours", (time.thread_time() - began) * 1000)
    yield row


def cluster_rows(rounds: int) -> Iterator[Row]:
    """Measure how long a test waits for a cluster of two brokers."""
    for processes, target in ((False, "<= 60 ms"), (True, "<= 400 ms")):
        where = "processes of their own" if processes else "the test's process"
        row = _row(f"`pyrmq.testing.cluster(brokers=2)` in {where}: ready", "ms", target)
        for turn in range(rounds + 1):
            began = time.monotonic()
            with cluster(brokers=2, processes=processes):
                if turn:
                    row.add("ours", (time.monotonic() - began) * 1000)
        yield row


ROWS: dict[str, Callable[[int], Iterator[Row]]] = {
    "verbs": verb_rows,
    "scrape": scrape_rows,
    "clusters": cluster_rows,
}
"""What `--rows` takes."""
