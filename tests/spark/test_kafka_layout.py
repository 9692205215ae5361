"""Option ``layout=kafka``: the columns of Spark's Kafka source and sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq._tables import kafka
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PAIRS = pa.map_(pa.string(), pa.string())


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
