"""Directories of log files as Spark tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from pyrmq import Producer
from pyrmq._tables.options.log_options import LogOptions
from pyrmq.cli.main import main
from pyrmq.pipeline import load, run
from pyrmq.pipeline.templates import TEMPLATES
from pyrmq.spark.reading.log_files import LogStreamReader
from pyrmq.testing import cluster
from tests.spark.test_read_log import SEGMENT, fill, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]
COLUMNS = (
    "topic,brokerName,queueId,queueOffset,body,keys,tags,msgId,bornTimestamp,storeTimestamp,"
    "bornHost,storeHost,flag,sysFlag,reconsumeTimes,commitLogOffset"
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    store = tmp_path_factory.mktemp("log")
    with cluster(store=store, mapped_file_size_commit_log=SEGMENT) as ours:
        fill(ours)
        yield ours


def loaded(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load(str(path))


def test_a_directory_gives_the_rows_of_its_broker(spark: SparkSession, running: Cluster) -> None:
    common = {"topic": "Log0,Log1", "columns": COLUMNS}
    reader = spark.read.format("rocketmq").option("nameServer", running.name_server)
    pulled = reader.options(**common).load()
    # Pieces of one segment each: several tasks.
    files = loaded(
        spark, running.store, brokerName="broker-a", maxPartitionBytes=str(SEGMENT), **common
    )
    assert files.rdd.getNumPartitions() > 1
    assert files.count() == pulled.count() == 402
    assert files.exceptAll(pulled).count() == 0
    assert pulled.exceptAll(files).count() == 0


def test_a_query_and_a_backfill_read_a_directory(
    spark: SparkSession, running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = "SELECT count(*) AS n FROM (SELECT body FROM Log0 UNION ALL SELECT body FROM Log1)"
    assert main(["query", both, str(running.store), "--json"]) == 0
    assert capsys.readouterr().out == '{"n": 402}\n'
    assert main(["query", "SELECT * FROM nowhere", str(running.store)]) == 2
    assert "names no topic of" in (said := capsys.readouterr().err)
    assert "it has Log0, Log1" in said
    file = tmp_path / "backfill.toml"
    text = TEMPLATES["backfill"].replace("/data/store", str(running.store))
    file.write_text(text.replace('topic = "orders"', 'topic = "Log0,Log1"'))
    assert run(spark, load(file)).error is None
    assert spark.read.parquet(str(tmp_path / "lake" / "orders")).count() == 402


def test_a_real_brokers_directory_and_a_users_schema(spark: SparkSession, tmp_path: Path) -> None:
    root, messages = unpacked("4.6.1-kill", tmp_path)
    reader = spark.read.format("rocketmq").schema("body STRING, KEYS ARRAY<STRING>, topic STRING")
    rows = reader.option("topicPattern", "Pl.*").load(f"file://{root}").collect()
    assert len(rows) == sum(one["topic"] == "Plain" for one in messages)
    assert {row.topic for row in rows} == {"Plain"}


def test_a_wrong_directory_fails_at_planning(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is empty: name a broker's storePathRootDir"):
        loaded(spark, tmp_path).collect()
    with pytest.raises(Exception, match="did you mean onCorrupt"):
        loaded(spark, tmp_path, onCorupt="skip").collect()


def test_a_spark_that_does_not_tell_where_a_stream_stands_reads_nothing_twice(
    tmp_path: Path,
) -> None:
    """Spark 4.1 asks for an end without a start, after a restart, too."""
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1", "columns": "body"}
    schema = StructType([StructField("body", BinaryType())])

    def process() -> LogStreamReader:
        options = LogOptions.parse({**given, "path": str(ours.store)}, batch=False)
        return LogStreamReader(options, schema)

    def texts(reader: LogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        tables = [table for part in reader.partitions(start, end) for table in reader.read(part)]
        return [body for table in tables for body in table.column("body").to_pylist()]

    with (
        cluster(store=tmp_path, mapped_file_size_commit_log=SEGMENT) as ours,
        Producer(name_server=ours.name_server) as producer,
    ):
        for body in (b"a", b"b", b"c"):
            producer.send("Untold", body)
        first = process()
        begin = first.initialOffset()
        end = first.latestOffset()
        assert texts(first, begin, end) == [b"a", b"b", b"c"]
        # The driver died before the first batch was done, and later after it.
        replayed = process()
        assert texts(replayed, replayed.initialOffset(), end) == [b"a", b"b", b"c"]
        producer.send("Untold", b"d")
        again = process()
        assert texts(again, end, again.latestOffset()) == [b"d"]
        producer.send("Untold", b"e")
        producer.send("Untold", b"f")
        assert again._planned is not None
        stands = again._planned
        assert texts(again, stands, again.latestOffset()) == [b"e"]


def test_a_stream_over_a_growing_directory_gives_each_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with cluster(store=tmp_path / "log", mapped_file_size_commit_log=SEGMENT) as ours:
        stream = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "100")
            .option("columns", "body")
        )
        with Producer(name_server=ours.name_server, group="growing") as producer:
            for first in (0, 150):
                for number in range(first, first + 150):
                    producer.send("Grows", b"%d" % number)
                query = (
                    stream.load(str(ours.store))
                    .writeStream.format("parquet")
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                    .start(str(tmp_path / "out"))
                )
                assert query.awaitTermination(120)
                rows = spark.read.parquet(str(tmp_path / "out")).collect()
                assert sorted(int(row.body) for row in rows) == list(range(first + 150))
        # Another log under the same checkpoint is a loss, not a silent wait.
        for path in (ours.store / "commitlog").iterdir():
            path.unlink()
        query = (
            stream.load(str(ours.store))
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(Exception, match="was read up to"):
            query.awaitTermination(120)
