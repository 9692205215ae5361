"""Option ``layout=kafka``: the columns of Spark's Kafka source and sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq._tables import kafka
from pyrmq._tables.errors import OptionError
from pyrmq._tables.options.sink_options import SinkOptions
from pyrmq._tables.options.topic_options import Options
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PAIRS = pa.map_(pa.string(), pa.string())


QUEUES = '{"orders":{"broker-a":{"0":1}}}'
TAKEN = {
    "assign": '{"orders":{"broker-a":[0]}}',
    "subscribe": "orders",
    "subscribePattern": "orders.*",
    "startingTimestamp": "1",
    "startingOffsetsByTimestamp": QUEUES,
    "startingOffsetsByTimestampStrategy": "error",
    "startingOffsets": QUEUES,
    "endingTimestamp": "1",
    "endingOffsetsByTimestamp": QUEUES,
    "endingOffsets": QUEUES,
    "failOnDataLoss": "false",
    "maxOffsetsPerTrigger": "1",
    "minOffsetsPerTrigger": "1",
    "maxTriggerDelay": "1m",
    "minPartitions": "1",
    "maxRecordsPerPartition": "1",
    "includeHeaders": "true",
}
"""Options of Spark's Kafka source that have the same name here."""
HINTED = {
    "kafka.bootstrap.servers": "nameServer is the list of the cluster's name servers",
    "kafka.group.id": "it is group",
    "groupIdPrefix": "it is group",
    "kafkaConsumer.pollTimeoutMs": "timeoutMs limits the time for tries",
    "fetchOffset.numRetries": "timeoutMs limits the time for tries",
    "fetchOffset.retryIntervalMs": "timeoutMs limits the time for tries",
    "kafka.max.poll.records": "clients of RocketMQ have no such setting",
}
"""The others, each with what the error says."""


@pytest.mark.parametrize("name", TAKEN)
def test_an_option_of_the_kafka_source_is_taken(name: str) -> None:
    given = {"nameServer": "h:1", "layout": "kafka", name: TAKEN[name]}
    if name not in {"assign", "subscribe", "subscribePattern"}:
        given["topic"] = "orders"
    Options.parse(given, batch=name.startswith("ending"))


@pytest.mark.parametrize("name", HINTED)
def test_an_option_of_kafkas_own_is_refused_with_a_hint(name: str) -> None:
    text = f"option {re.escape(name)}: is an option of Kafka's: {HINTED[name]}"
    with pytest.raises(OptionError, match=text):
        Options.parse({"nameServer": "h:1", "topic": "orders", name: "1"}, batch=True)
    with pytest.raises(OptionError, match=text):
        SinkOptions.parse({"nameServer": "h:1", name: "1"}, has_topic_column=True)


def test_the_sink_takes_the_options_of_the_kafka_sink() -> None:
    given = {"nameServer": "h:1", "topic": "orders", "includeHeaders": "true"}
    assert SinkOptions.parse({**given, "layout": "kafka"}, has_topic_column=False).kafka_layout
    with pytest.raises(OptionError, match="includeHeaders: is for layout=kafka"):
        SinkOptions.parse(given, has_topic_column=False)


def headers(rows: list[list[tuple[str, str]] | None]) -> pa.Array:
    wanted = kafka.sources(["headers"])
    batch = pa.RecordBatch.from_arrays([pa.array(rows, PAIRS)], schema=wanted)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema([("headers", kind)])
    made = kafka.from_messages(batch.slice(1), ["headers"], schema)
    return made.column(0)


def test_headers_are_the_properties_that_are_not_rocketmqs_own() -> None:
    found = headers(
        [[("cut", "off")], [("a", "1"), ("KEYS", "k"), ("b", "2")], None, [("TAGS", "x")]]
    )
    assert found.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}],
        None,
        [],
    ]


def test_rows_of_kafkas_columns_become_messages() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.RecordBatch.from_pydict(
        {
            "Key": pa.array([b"k", b"a b", None], pa.binary()),
            "value": ["x", "y", "z"],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], pa.list_(pair)),
            "partition": pa.array([1, None, 2], pa.int32()),
        }
    )
    names = {"key": "Key", "value": "value", "headers": "headers", "partition": "partition"}
    for part, rows in ((table, slice(None)), (table.slice(1), slice(1, None))):
        made = kafka.to_messages(part, names).to_pydict()
        assert set(made) == set(kafka.sent_columns(names))
        assert made["body"] == ["x", "y", "z"][rows]
        assert made["shardingKey"] == ["k", "a b", None][rows]
        assert made["keys"] == ["k", None, None][rows]
        assert made["properties"] == [[("h", "1")], None, []][rows]
        assert made["queueId"] == [1, None, 2][rows]


@pytest.mark.spark
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
def test_a_program_for_kafka_keeps_its_columns(
    spark: SparkSession, new_topic: Callable[..., Topic]
) -> None:
    source, target = new_topic(1), new_topic(2)
    source.send(0, [Sent(b"x", keys="k1", properties={"h": "1"}), Sent(b"y")])
    frame = source.read(spark, layout="kafka")
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    options = {"nameServer": target.name_server, "layout": "kafka", "topic": target.name}
    options["includeHeaders"] = "true"
    with_headers = source.read(spark, layout="kafka", includeHeaders="true")
    sent = with_headers.select("key", "value", "headers")
    sent.write.format("rocketmq").mode("append").options(**options).save()
    back = target.reader(spark, layout="kafka", columns="VALUE,key,headers,brokerName").load()
    rows = sorted((bytes(row.value), row.key, row["headers"]) for row in back.collect())
    assert [(value, key) for value, key, _ in rows] == [(b"x", bytearray(b"k1")), (b"y", None)]
    assert [tuple(pair) for pair in rows[0][2]] == [("h", bytearray(b"1"))]
    with pytest.raises(Exception, match=r"column body: unknown.*is a column of layout=rocketmq"):
        source.reader(spark, layout="kafka").schema("body BINARY").load().collect()
    with pytest.raises(Exception, match=r"column value: unknown.*is a column of layout=kafka"):
        source.reader(spark, columns="value").load().collect()
