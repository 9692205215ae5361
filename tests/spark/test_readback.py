"""The exactly-once sink's writer on two brokers, without Spark: a task runs again."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pyrmq import Admin, arrow
from pyrmq._tables.batch import planned
from pyrmq._tables.errors import BrokerAway, DataLossError, OptionError
from pyrmq._tables.offsets import Bounds
from pyrmq._tables.options.topic_options import Options
from pyrmq.errors import SendTimeout, TopicNotFound
from pyrmq.spark.writing import readback
from pyrmq.spark.writing.task import Task, Writer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyrmq._tables.offsets import Queue
    from pyrmq._tables.options.sink_options import SinkOptions
    from pyrmq.spark.writing.task import Sent
    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
NUMBERS = itertools.count(1)
BODY = StructType([StructField(name, StringType()) for name in ("body", "shardingKey")])


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Two brokers in processes of their own."""
    with cluster(brokers=2, processes=True) as running:
        yield running


class Sink:
    """A task of a query that writes to a topic of both brokers."""

    def __init__(self, running: Cluster, timeout_ms: int) -> None:
        for broker in running.brokers:
            broker.start()
        self.running = running
        self.topic = f"Readback{next(NUMBERS)}"
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(self.topic, queues=2)
        # Waits for both brokers, too.
        planned(self.options())
        self.timeout_ms = timeout_ms
        self.begun = self.writer()._begin(None)

    def options(self) -> Options:
        """Return a read of the topic that waits for both brokers."""
        names = ",".join(broker.name for broker in self.running.brokers)
        given = {"nameServer": self.running.name_server, "topic": self.topic, "brokers": names}
        return Options.parse(given, batch=True)

    def writer(self) -> Writer:
        """Return the sink's writer as a worker has it."""
        given = {
            "nameServer": self.running.name_server,
            "topic": self.topic,
            "delivery": "exactly-once",
            "timeoutMs": str(self.timeout_ms),
        }
        return Writer(given, BODY, overwrite=False)

    def attempt(self, number: int, tables: Iterator[pa.RecordBatch]) -> Sent:
        """Run the task."""
        sent = self.writer()._send(tables, Task("q", 0, 0, number), self.begun)
        return sent  # type: ignore[return-value]

    def bodies(self) -> Counter[str]:
        """Count the texts that both brokers hold."""
        planned(self.options())
        table = arrow.read(self.topic, name_server=self.running.name_server, columns=["body"])
        return Counter(table.column("body").to_pylist())


def rows(count: int, tables: int = 20) -> Iterator[pa.RecordBatch]:
    """Return tables of `count` rows; their keys spread each table over both brokers."""
    for table in range(tables):
        numbers = range(count)
        yield pa.RecordBatch.from_pydict(
            {
                "body": [f"{table}-{row}" for row in numbers],
                "shardingKey": [str(row) for row in numbers],
            }
        )


def failing(count: int, tables: int = 20) -> Iterator[pa.RecordBatch]:
    """Return the same, and then fail."""
    yield from rows(count, tables)
    raise RuntimeError("a row cannot be computed")


def test_a_task_that_fails_waits_for_what_is_on_its_way(running: Cluster) -> None:
    sink = Sink(running, 60_000)
    process = running.brokers[1].pid
    assert process is not None
    goes_on = threading.Event()

    def go_on() -> None:
        goes_on.set()
        os.kill(process, signal.SIGCONT)

    os.kill(process, signal.SIGSTOP)
    later = threading.Timer(2, go_on)
    later.start()
    with pytest.raises(RuntimeError, match="cannot be computed"):
        sink.attempt(0, failing(400, tables=4))
    assert goes_on.is_set()
    later.join()
    again = sink.attempt(1, rows(400, tables=4))
    assert (again.rows, again.there) == (0, 1600)
    assert set(sink.bodies().values()) == {1}


def test_a_broker_that_is_away_at_the_readback_is_waited_for(running: Cluster) -> None:
    sink = Sink(running, 3000)
    with pytest.raises(RuntimeError, match="cannot be computed"):
        sink.attempt(0, failing(100))
    running.brokers[1].stop()
    with pytest.raises(BrokerAway, match=running.brokers[1].name):
        sink.attempt(1, rows(100))
    running.brokers[0].stop()
    with pytest.raises(BrokerAway, match="in no route"):
        sink.attempt(1, rows(100))
    sink.timeout_ms = 60_000
    starts = [threading.Thread(target=broker.start) for broker in running.brokers]
    for start in starts:
        start.start()
    assert sink.attempt(2, rows(100)).there == 2000
    for start in starts:
        start.join()
    found = sink.bodies()
    assert len(found) == 2000
    assert set(found.values()) == {1}


def test_a_broker_that_was_in_no_route_when_the_batch_began_is_waited_for(
    running: Cluster,
) -> None:
    sink = Sink(running, 3000)
    assert sink.begun is not None
    first, second = running.brokers
    known = {queue: at for queue, at in sink.begun.ends.items() if queue.broker == first.name}
    sink.begun = replace(sink.begun, ends=known)
    with pytest.raises(RuntimeError, match="cannot be computed"):
        sink.attempt(0, failing(100, tables=2))
    second.stop()
    with pytest.raises(BrokerAway, match=second.name):
        sink.attempt(1, rows(100, tables=2))
    second.start()
    sink.timeout_ms = 60_000
    assert sink.attempt(2, rows(100, tables=2)).there == 200
    assert set(sink.bodies().values()) == {1}


def test_a_topic_that_was_written_to_is_looked_for_until_its_brokers_register(
    running: Cluster,
) -> None:
    sink = Sink(running, 5000)
    options, topic = sink.writer().options, f"{sink.topic}Later"
    with pytest.raises(TopicNotFound, match=f"{topic}: does not exist on .* before it sends"):
        readback.topic_ends(options, topic)

    def create() -> None:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(topic, queues=1)

    later = threading.Timer(1, create)
    later.start()
    assert set(readback.topic_ends(options, topic, is_known=True).values()) == {0}
    later.join()


def test_what_a_hanging_broker_stores_late_is_read_back(running: Cluster) -> None:
    sink = Sink(running, 3000)
    process = running.brokers[1].pid
    assert process is not None
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(SendTimeout):
            sink.attempt(0, rows(2000))
        sink.timeout_ms = 60_000
        goes_on = threading.Timer(2, os.kill, (process, signal.SIGCONT))
        goes_on.start()
        sink.attempt(1, rows(2000))
    finally:
        os.kill(process, signal.SIGCONT)
    found = sink.bodies()
    assert len(found) == 40_000
    assert set(found.values()) == {1}


def test_a_read_waits_for_a_named_broker_that_registers_later(running: Cluster) -> None:
    sink = Sink(running, 3000)
    running.brokers[1].stop()
    with pytest.raises(BrokerAway, match=running.brokers[1].name):
        arrow.read(sink.topic, name_server=running.name_server, timeout=1, brokers=["broker-b"])
    back = threading.Timer(2, running.brokers[1].start)
    back.start()
    _, addresses = planned(sink.options())
    back.join()
    assert set(addresses) == {broker.name for broker in running.brokers}


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_topic_that_does_not_exist_fails_the_write(delivery: str) -> None:
    with cluster(auto_create_topic_enable=False) as closed:
        given = {"nameServer": closed.name_server, "topic": "Nowhere", "timeoutMs": "3000"}
        writer = Writer({**given, "delivery": delivery}, BODY, overwrite=False)
        text = r"topic `?Nowhere`?:? does not exist.*`pyrmq topic create Nowhere`"
        with pytest.raises(TopicNotFound, match=text):
            writer._send(rows(1, tables=1), Task("q", 0, 0, 0), writer._begin(None))


@pytest.mark.parametrize("column", ["delay", "delayLevel"])
def test_delays_cannot_be_exactly_once(column: str) -> None:
    types = StructType([StructField("body", StringType()), StructField(column, IntegerType())])
    given = {"nameServer": "127.0.0.1:9876", "topic": "T", "delivery": "exactly-once"}
    with pytest.raises(OptionError, match=f"exactly-once is not possible with column {column}"):
        Writer(given, types, overwrite=False)


def test_a_queue_that_is_rebuilt_is_waited_for(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was killed shows an empty queue until it has read its log again."""
    sink = Sink(running, 3000)
    sink.attempt(0, rows(5, tables=2))
    sink.begun = sink.writer()._begin(None)
    with pytest.raises(RuntimeError, match="cannot be computed"):
        sink.attempt(0, failing(5, tables=2))
    real, shorter = readback._bounds, itertools.count()
    looks = [5]

    def bounds(
        options: SinkOptions, topic: str, brokers: Sequence[str] = ()
    ) -> tuple[dict[Queue, Bounds], dict[str, str]]:
        found, addresses = real(options, topic, brokers)
        if next(shorter) < looks[0]:
            found = dict.fromkeys(found, Bounds(0, 0))
        return found, addresses

    monkeypatch.setattr(readback, "_bounds", bounds)
    assert sink.attempt(1, rows(5, tables=2)).there == 10
    looks[0] = 10_000
    with pytest.raises(DataLossError, match="when the batch began, and ends at 0 now; waited 3 s"):
        sink.attempt(2, rows(5, tables=2))
