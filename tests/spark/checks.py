"""Checks that hold on our broker and on the real one, used by the tests of both."""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from tests.reference import properties as reference
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALL = (
    "topic,brokerName,queueId,queueOffset,body,keys,tags,properties,msgId,bornTimestamp,"
    "storeTimestamp,bornHost,storeHost,flag,sysFlag,reconsumeTimes,commitLogOffset"
)
COMPRESSED, BROKER_CONFIG = 1, 26
LARGE = 4_000_000
"""A body that a broker of default size takes, and a segment of 4 MiB."""


def all_columns_hold_what_a_plain_pull_shows(spark: SparkSession, topic: Topic) -> None:
    """Compare every column with the records as the reference codec reads them."""
    large = b"many times " * 2000
    sent = [
        Sent(b"plain"),
        Sent(b"\x00\xff", keys="k1 k2", tags="red", flag=7),
        Sent("ünïcode".encode(), properties={"color": "grün", "UNIQ_KEY": "7F" * 16}),
        Sent(zlib.compress(large), sys_flag=COMPRESSED, keys="large"),
    ]
    topic.send(2, sent)
    records = topic.records(2, len(sent))
    rows = topic.read(spark, columns=ALL).orderBy("queueOffset").collect()
    assert len(rows) == len(sent)
    for row, record in zip(rows, records, strict=True):
        expected = reference.decode(record.properties)
        host = f"{record.store_host}:{record.store_port}"
        offset_id = record.store_host.packed + record.store_port.to_bytes(4, "big")
        offset_id += record.physical_offset.to_bytes(8, "big")
        assert row.asDict() == {
            "topic": topic.name,
            "brokerName": row.brokerName,
            "queueId": 2,
            "queueOffset": record.queue_offset,
            "body": bytearray(zlib.decompress(record.body) if record.sys_flag & 1 else record.body),
            "keys": expected.get("KEYS"),
            "tags": expected.get("TAGS"),
            "properties": expected,
            "msgId": expected.get("UNIQ_KEY", offset_id.hex().upper()),
            "bornTimestamp": _time(record.born_timestamp),
            "storeTimestamp": _time(record.store_timestamp),
            "bornHost": f"{record.born_host}:{record.born_port}",
            "storeHost": host,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "commitLogOffset": record.physical_offset,
        }
        assert row.brokerName
    assert bytes(rows[3].body) == large


def every_way_gives_the_same_rows(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """Read all that a topic can hold as batch, stream, log files and without Spark."""
    _same_rows(spark, topic, folder, _fill_with_everything(topic))


def every_way_gives_the_same_rows_of_batches(
    spark: SparkSession, topic: Topic, folder: Path
) -> None:
    """Read a topic whose broker stores each batch as one record, as above."""
    batches = [
        [
            Sent(
                f"{batch}-{row}".encode(),
                keys=f"k{row}",
                tags="ab"[row % 2],
                properties={"UNIQ_KEY": f"{batch:030}{row:02}"},
            )
            for row in range(1 + 4 * batch)
        ]
        for batch in range(3)
    ]
    for batch in batches:
        topic.send_batch(0, batch)
    _same_rows(spark, topic, folder, [one.body for batch in batches for one in batch])


def _same_rows(spark: SparkSession, topic: Topic, folder: Path, expected: list[bytes]) -> None:
    from pyspark.sql import functions as F

    from pyrmq import arrow

    columns = [name for name in ALL.split(",") if name != "properties"]
    broker = topic.broker_name()
    batch = topic.read(spark, columns=ALL)
    query = topic.stream(spark, columns=ALL, startingOffsets="earliest").load()
    writer = query.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    log = spark.read.format("rocketmq").option("brokerName", broker).option("columns", ALL)
    table = arrow.read(
        topic.name, name_server=topic.name_server, columns=ALL.split(","), progress=False
    )
    table_folder = folder / "arrow"
    table_folder.mkdir()
    pq.write_table(table, table_folder / "rows.parquet")
    ways = {
        "batch": batch,
        "stream": spark.read.parquet(str(folder / "rows")),
        "files": log.option("topic", topic.name).load(str(_store(topic))),
        "arrow": spark.read.parquet(str(table_folder)),
    }
    # A map can be neither sorted nor compared: its entries can.
    entries = F.sort_array(F.map_entries("properties"))
    rows = {
        name: Counter(map(_hashable, frame.select(*columns, entries).collect()))
        for name, frame in ways.items()
    }
    bodies = Counter(row[columns.index("body")] for row in rows["batch"].elements())
    assert bodies == Counter(expected)
    for name, found in rows.items():
        assert found == rows["batch"], name


def _hashable(row: Row) -> tuple[object, ...]:
    cells = (bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)
    return tuple(tuple(map(tuple, cell)) if isinstance(cell, list) else cell for cell in cells)


def _fill_with_everything(topic: Topic) -> list[bytes]:
    """Send one message of each kind, and return the bodies that are read."""
    import pyarrow as pa

    from pyrmq import Producer, TransactionProducer, TransactionState

    text = b"many times " * 2000
    plain = [
        Sent(b"no key, no tags"),
        Sent("ünïcode ☃".encode(), keys="schlüssel", tags="größe", properties={"farbe": "grün"}),
        Sent(bytes(range(256)), keys="k1 k2", tags="red", flag=7),
        Sent(random.Random(4).randbytes(LARGE)),
        Sent(b"500 properties", properties={f"name{n}": f"value {n}" for n in range(500)}),
        Sent(b"twice"),
        Sent(b"twice"),
    ]
    packed = [
        Sent(zlib.compress(text), sys_flag=COMPRESSED),
        Sent(zlib.compress(text), sys_flag=COMPRESSED | 3 << 8),
        Sent(pa.Codec("lz4").compress(text, asbytes=True), sys_flag=COMPRESSED | 1 << 8),
        Sent(pa.Codec("zstd").compress(text, asbytes=True), sys_flag=COMPRESSED | 2 << 8),
    ]
    topic.send(0, plain)
    topic.send(1, packed)
    states = iter([TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN])
    with TransactionProducer(
        name_server=topic.name_server,
        group=f"paid-{topic.name}",
        check=lambda _: TransactionState.UNKNOWN,
    ) as producer:
        for body in (b"committed", b"rolled back", b"open"):
            producer.send_in_transaction(topic.name, body, local=lambda _: next(states))
    with Producer(name_server=topic.name_server) as producer:
        producer.send(topic.name, b"a second late", delay_level=1)
    expected = [one.body for one in plain] + [text] * len(packed) + [b"committed", b"a second late"]
    deadline = time.monotonic() + 30
    ends = {"topic": topic.name}
    while sum(
        int(topic.ask(30, {**ends, "queueId": queue}).fields["offset"]) for queue in range(4)
    ) < len(expected):
        assert time.monotonic() < deadline, "not all is there"
        time.sleep(0.05)
    return expected


def _store(topic: Topic) -> Path:
    """Return the store directory of the broker, which runs on this machine."""
    text = (topic.ask(BROKER_CONFIG, {}).body or b"").decode()
    lines = [line.partition("=") for line in text.splitlines()]
    return Path(next(value for name, _, value in lines if name == "storePathRootDir"))


def a_stream_goes_on_from_its_checkpoint(spark: SparkSession, topic: Topic, folder: Path) -> None:
    """Run a query three times with messages in between: nothing is lost or doubled."""
    sent: list[str] = []
    for run in range(3):
        for queue_id in range(4):
            texts = [f"{run}-{queue_id}-{number}" for number in range(7 * queue_id)]
            topic.send(queue_id, texts)
            sent += texts
        run_to_parquet(spark, topic, folder, startingOffsets="earliest", maxOffsetsPerTrigger=20)
        assert read_back(spark, folder) == sorted(sent)
    run_to_parquet(spark, topic, folder, startingOffsets="earliest")
    assert read_back(spark, folder) == sorted(sent)


def times_are_exact(topic: Topic) -> None:
    """Compare offsets by time with the store times of all messages, for every time around them."""
    from pyrmq._tables.brokers.remote import RemoteCluster
    from pyrmq._tables.offsets import Bounds, Queue
    from pyrmq._tables.options.topic_options import Options

    for number in range(6):
        topic.send(0, [f"{number}-{copy}" for copy in range(1 + number % 3)])
        time.sleep(0.003 * number)
    stored = [record.store_timestamp for record in topic.records(0, 11)]
    broker = topic.broker_name()
    full, empty = Queue(topic.name, broker, 0), Queue(topic.name, broker, 1)
    options = Options.parse({"nameServer": topic.name_server, "topic": topic.name}, batch=True)
    cluster = RemoteCluster(options)
    try:
        bounds = cluster.snapshot([topic.name]).bounds
        assert bounds[full] == Bounds(0, len(stored))
        wanted = {0, stored[0] - 100_000, stored[-1] + 100_000}
        wanted |= {at + more for at in stored for more in (-1, 0, 1)}
        for moment in sorted(wanted):
            older = sum(at < moment for at in stored)
            found = cluster.offsets_at({full: bounds[full], empty: bounds[empty]}, moment)
            assert found == {full: older, empty: 0}, moment
            later = Bounds(min(3, older), len(stored))
            assert cluster.offsets_at({full: later}, moment) == {full: older}, moment
    finally:
        cluster.close()


def run_to_parquet(
    spark: SparkSession, topic: Topic, folder: Path, **options: object
) -> StreamingQuery:
    """Write the available messages to Parquet and end."""
    query = (
        topic.stream(spark, **options)
        .load()
        .selectExpr("cast(body as string) as text")
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


def read_back(spark: SparkSession, folder: Path) -> list[str]:
    """Return the texts that a query wrote, sorted."""
    rows: list[Row] = spark.read.schema("text string").parquet(str(folder / "rows")).collect()
    return sorted(row.text for row in rows)


def _time(milliseconds: int) -> datetime:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.astimezone().replace(tzinfo=None)
