"""Stored messages: the record layout, properties, consumed messages and Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest

from pyrmq import Producer, PullConsumer
from pyrmq._client.arrow import batch
from pyrmq._core import Connections, RangeReader, RequestReply, scan_records
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from pyrmq.testing import Cluster

MESSAGES = 10_000
TOPIC = "micro"
BODY = b"x" * 128
ROUNDS = 20


class Stored(NamedTuple):
    """A broker with messages, and their records as the log has them."""

    cluster: Cluster
    log: bytes


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """Store `MESSAGES` messages with two properties each in one queue."""
    home: Path = tmp_path_factory.mktemp("micro")
    with cluster(store=home, default_topic_queue_nums=1) as running:
        with Producer(name_server=running.name_server, group="micro") as producer:
            for number in range(MESSAGES):
                producer.produce(TOPIC, BODY, keys=f"order-{number}", tags="new")
            assert producer.flush()
        first = min((home / "store" / "commitlog").iterdir())
        with first.open("rb") as log:
            yield Stored(running, log.read(MESSAGES * 400))


@pytest.mark.benchmark(group="read 10,000 records of a log")
def test_scan(benchmark: BenchmarkFixture, stored: Stored) -> None:
    rows, *_ = benchmark(scan_records, stored.log, 0, 0, False)
    assert len(rows) >= MESSAGES


@pytest.mark.benchmark(group="read 10,000 records of a log")
def test_scan_with_checksums(benchmark: BenchmarkFixture, stored: Stored) -> None:
    rows, *_ = benchmark(scan_records, stored.log, 0, 0, True)
    assert len(rows) >= MESSAGES


@pytest.mark.benchmark(group="read one record")
def test_decode_a_record(benchmark: BenchmarkFixture, stored: Stored) -> None:
    rows, *_ = scan_records(stored.log, 0, 0, False)
    position, size = next((row[0], row[1]) for row in rows if row[2] == TOPIC)
    record = stored.log[position : position + size]
    assert benchmark(RequestReply.message_of, record, "broker-a").body == BODY


@pytest.mark.benchmark(group="read one record")
def test_decode_properties(benchmark: BenchmarkFixture, stored: Stored) -> None:
    rows, *_ = scan_records(stored.log, 0, 0, False)
    position, size = next((row[0], row[1]) for row in rows if row[2] == TOPIC)
    record = stored.log[position : position + size]

    def properties() -> dict[str, str]:
        return RequestReply.message_of(record, "broker-a").properties

    assert benchmark(properties)["TAGS"] == "new"


@pytest.mark.benchmark(group="consume 10,000 messages")
def test_poll(benchmark: BenchmarkFixture, stored: Stored) -> None:
    def whole() -> int:
        with PullConsumer(
            name_server=stored.cluster.name_server, group="micro", start="first", auto_commit=None
        ) as consumer:
            consumer.subscribe(TOPIC)
            count = 0
            while count < MESSAGES:
                count += sum(len(one.body) == len(BODY) for one in consumer.poll(1000, timeout=10))
            return count

    assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2) == MESSAGES


@pytest.mark.benchmark(group="consume 10,000 messages")
def test_columns(benchmark: BenchmarkFixture, stored: Stored) -> None:
    connections = Connections()
    schema = pa.schema([("body", pa.binary()), ("queueOffset", pa.int64())])

    def whole() -> int:
        reader = RangeReader(
            connections,
            [(stored.cluster.broker.address, "broker-a", TOPIC, 0, 0, MESSAGES)],
            schema.names,
            group="micro",
            tags="*",
            max_rows=65_536,
            max_bytes=64 << 20,
            pulls_in_flight=4,
            timeout_ms=10_000,
            skip_lost=False,
        )
        rows = 0
        while (block := reader.next_block()) is not None:
            rows += batch(block, schema).num_rows
        return rows

    try:
        assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2) == MESSAGES
    finally:
        connections.close()
