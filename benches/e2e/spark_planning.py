"""Rows of the Spark source that need no other system: planning, an idle stream, the bare reader.

What Spark's driver and workers do in Python is called as they call it, so the JVM takes no part in
these figures, but for rows that name Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benches.usage import cpu_seconds
from pyrmq import Admin, Producer, arrow
from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.progress import Progress
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benches.row import Row

POLL_S = 0.01
"""How often Spark asks a stream that is idle."""
LIMIT = 1_000_000


class _Stream:
    """A stream over many topics of two brokers, as Spark drives its planning."""

    def __init__(self, name_server: str, topics: list[str]) -> None:
        given = {"nameServer": name_server, "topic": ",".join(topics)}
        options = Options.parse(given, batch=False)
        self.cluster = RemoteCluster(options)
        self.progress = Progress(options, self.cluster)
        self.requests = 0
        self._request = self.cluster._request
        self.cluster._request = self._counted  # type: ignore[assignment,method-assign]

    def _counted(self, code: Any, requests: Any, *rest: Any) -> Any:  # noqa: ANN401 - passed on
        self.requests += len(requests)
        return self._request(code, requests, *rest)

    def plan(self, start: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan a batch; with no start the first one."""
        begin = self.progress.initial() if start is None else start
        end = self.progress.latest(begin, limit=LIMIT)
        self.progress.tasks(begin, end)
        return end


@contextmanager
def _many_topics(count: int) -> Iterator[tuple[str, list[str]]]:
    """Run two brokers with `count` topics of four queues each; yield the name server and names."""
    topics = [f"Many{number}" for number in range(count)]
    with cluster(brokers=2, processes=True) as running:
        with Admin(name_server=running.name_server) as admin:
            for topic in topics:
                admin.create_topic(topic, queues=4)
        yield running.name_server, topics


def planning(row: Row, rounds: int, topics: int) -> None:
    """Plan the first batch of a new query over many topics: seconds."""
    with _many_topics(topics) as (name_server, names):
        for _ in range(rounds):
            stream = _Stream(name_server, names)
            begun = time.perf_counter()
            stream.plan()
            row.add("ours", time.perf_counter() - begun)
            stream.cluster.close()


def marks(row: Row, rounds: int) -> None:
    """Read the message before the position of 64 queues on two brokers: milliseconds a call."""
    topics = 8
    with _many_topics(topics) as (name_server, names):
        with Producer(name_server=name_server) as producer:
            for name in names:
                # Without batches they go to the queues in turn.
                for _ in range(40):
                    producer.send(name, b"a message before a position")
        stream = _Stream(name_server, names)
        bounds = stream.cluster.snapshot(names).bounds
        positions = {queue: held.highest for queue, held in bounds.items()}
        assert len(positions) == 64
        assert min(positions.values()) > 0
        for number in range(rounds + 1):
            begun = time.perf_counter()
            found = stream.cluster.marks(positions)
            took = time.perf_counter() - begun
            assert found.keys() == positions.keys()
            # The first one opens the connections.
            if number:
                row.add("ours", 1000 * took)
        stream.cluster.close()


def idle(rows: dict[str, Row], rounds: int, topics: int, seconds: float) -> None:
    """Poll a stream in which nothing happens, then send one message.

    Args:
        rows: `requests`, `core` and `wake` get requests a second, the share of a core that the
            planning process takes in percent, and seconds until the message is planned.
        rounds: how often.
        topics: how many.
        seconds: how long the stream is idle.
    """
    with (
        _many_topics(topics) as (name_server, names),
        Producer(name_server=name_server) as producer,
    ):
        stream = _Stream(name_server, names)
        end = stream.plan()
        for _ in range(rounds):
            stream.requests = 0
            begun, cpu = time.perf_counter(), cpu_seconds(os.getpid())
            while (took := time.perf_counter() - begun) < seconds:
                end = stream.progress.latest(end, limit=LIMIT)
                time.sleep(POLL_S)
            rows["requests"].add("ours", stream.requests / took)
            rows["core"].add("ours", 100 * (cpu_seconds(os.getpid()) - cpu) / took)
            producer.send(names[0], b"a message after an idle time")
            begun = time.perf_counter()
            while (after := stream.progress.latest(end, limit=LIMIT)) == end:
                time.sleep(POLL_S)
            rows["wake"].add("ours", time.perf_counter() - begun)
            stream.progress.tasks(end, after)
            end = after
        stream.cluster.close()


def reader(
    row: Row, rounds: int, name_server: str, topic: str, columns: str, pids: list[int]
) -> None:
    """Read a topic without Spark: rows a second of processor time of reader and brokers."""
    pids = [os.getpid(), *pids]
    wanted = columns.split(",")
    for number in range(rounds + 1):
        before = sum(map(cpu_seconds, pids))
        count = sum(
            batch.num_rows for batch in arrow.scan(topic, name_server=name_server, columns=wanted)
        )
        spent = sum(map(cpu_seconds, pids)) - before
        # The first one warms both sides.
        if number:
            row.add("ours", count / max(spent, 1e-3))


SCAN = """\
import sys, time
from pyrmq import arrow
begun = time.perf_counter()
rows = sum(b.num_rows for b in arrow.scan_log(sys.argv[1], sys.argv[2], columns=sys.argv[3:]))
print(rows, time.perf_counter() - begun)
"""


def scan(row: Row, rounds: int, store: Path, topic: str, columns: str) -> None:
    """Read log files into columns on one core, in a process of its own: GiB of the log a second."""
    places = arrow.scan_log(store, columns=["commitLogOffset"])
    log = max(max(batch.column(0).to_pylist(), default=0) for batch in places)
    command = ["taskset", "-c", "0", sys.executable, "-c", SCAN, str(store), topic]
    for number in range(rounds + 1):
        done = subprocess.run(
            [*command, *columns.split(",")], check=True, capture_output=True, text=True, timeout=600
        )
        if number:
            row.add("ours", log / 2**30 / float(done.stdout.split()[1]))
