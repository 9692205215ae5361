"""Many groups: 64 in one process, and 1,000 whose pulls a broker holds."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from tests.e2e.wire import Connection

from benches.e2e.consumers import TOPIC
from benches.e2e.consumers.common import figure_row, line_of, load, scaled
from benches.e2e.servers import ours
from benches.open_loop import LIBRARY, at_rate, is_available, of_turn
from benches.usage import resident_mib
from pyrmq import Admin, Producer, QueueId, _core
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.row import Row

HELD_QUEUES = 10
HELD_CONNECTIONS = 20
RATE = 2000


def fan_out_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure 64 groups of one process on one topic."""
    text = f"64 groups on one topic in one process, {RATE:,} messages/s, lists of up to 32"
    middle = figure_row("fan-out-p50", f"{text}: send to call, p50", "ms", "reported")
    late = figure_row("fan-out", f"{text}: send to call, p99", "ms", "<= 5 ms")
    count = scaled(20_000, scale, 1000)
    if not is_available():
        print(f"not available: {text}: {LIBRARY} is not installed", file=sys.stderr)
        return
    with ours() as (side, _), Producer(name_server=side.name_server, linger=0) as producer:
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic(TOPIC, queues=4)
        producer.send(TOPIC, b"0")
        for _ in range(rounds):
            with load("fan_out", side.name_server, str(count)) as process:
                line_of(process)
                # A thread that spins would take the processor that the groups need.
                sends = at_rate(
                    lambda at: producer.produce(TOPIC, f"{at:.9f}".encode()), count, RATE, spin=0.0
                )
                producer.flush()
                figures = line_of(process)
            if figures["arrived"] != count:
                print(f"  {figures['arrived']:.0f} of {count} arrived", file=sys.stderr)
            turn = of_turn(figures["histogram"], sends)
            for row, percentile in ((middle, "p50"), (late, "p99")):
                row.add("ours", turn[percentile] / 1e3)
                row.latencies.setdefault("ours", []).append(turn)
    yield from (middle, late)


def held_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure a broker that holds 10,000 pulls of 1,000 groups, and a send that wakes them."""
    groups = scaled(1000, scale, HELD_CONNECTIONS)
    pulls = groups * HELD_QUEUES
    text = f"{pulls:,} held pulls of {groups:,} groups"
    memory = figure_row("held-memory", f"{text}: memory of the broker", "MiB", "<= 100 MB (95 MiB)")
    send = figure_row(
        "held-send", f"{text}: p50 of a send elsewhere / none held", "µs", "<= 1.2 times", "without"
    )
    wake = figure_row(
        "held-wake", f"a send that wakes {groups:,} held pulls: p99 to the last", "ms", "reported"
    )
    with ours() as (side, _), Producer(name_server=side.name_server) as producer:
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic("bench-held", queues=HELD_QUEUES)
            admin.create_topic("bench-other", queues=1)
            (broker,) = admin.cluster().popitem()[1]
        for _ in range(3):
            _lone(producer)
        before = resident_mib(side.broker_pid)
        took = []
        for turn in range(rounds):
            send.add("without", _lone(producer))
            holders = [Holder(str(broker.master), number) for number in range(HELD_CONNECTIONS)]
            for holder in holders:
                for queue in range(HELD_QUEUES):
                    holder.hold(queue, turn, groups)
            for holder in holders:
                holder.await_held()
            memory.add("ours", resident_mib(side.broker_pid) - before)
            send.add("ours", _lone(producer))
            for queue in range(HELD_QUEUES):
                began = time.perf_counter()
                producer.send("bench-held", b"x", queue=QueueId("bench-held", broker.name, queue))
                for holder in holders:
                    holder.answers(groups // HELD_CONNECTIONS)
                took.append((time.perf_counter() - began) * 1e3)
            for holder in holders:
                holder.close()
        wake.add("ours", statistics.quantiles(took, n=100, method="inclusive")[98])
    yield from (memory, send, wake)


class Holder:
    """A connection with held pulls of many groups."""

    def __init__(self, address: str, number: int) -> None:
        """Connect."""
        self._connection = Connection(address)
        self._number = number
        # Apart from those that `Connection.ask` counts.
        self._opaque = 1_000_000

    def hold(self, queue: int, offset: int, groups: int) -> None:
        """Ask for a message of a queue, for each of this connection's groups."""
        frames = bytearray()
        for number in range(groups // HELD_CONNECTIONS):
            self._opaque += 1
            fields: dict[str, str | int | bool | None] = {
                "consumerGroup": f"held-{self._number}-{number}",
                "topic": "bench-held",
                "queueId": str(queue),
                "queueOffset": str(offset),
                "maxMsgNums": "32",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "60000",
                "subscription": "*",
                "subVersion": "0",
            }
            frames += _core.Command(
                RequestCode.PULL_MESSAGE, fields, None, opaque=self._opaque, version=513
            ).encode()
        self._connection.write(bytes(frames))

    def await_held(self) -> None:
        """Wait until the broker has seen every pull: it takes a connection's requests in turn.

        A group is made by its first pull, with a write of a file.
        """
        fields = {"topic": "bench-other", "queueId": "0"}
        self._connection.ask(RequestCode.GET_MAX_OFFSET, fields, timeout=300.0)

    def answers(self, count: int) -> None:
        """Wait for this number of answers."""
        for _ in range(count):
            self._connection.read()

    def close(self) -> None:
        """Give the pulls up."""
        self._connection.close()


def _lone(producer: Producer, count: int = 1500) -> float:
    """Return the median time of a send to a topic without readers, in µs."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        producer.send("bench-other", b"x")
        took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)
