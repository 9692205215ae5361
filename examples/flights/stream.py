"""The Spark side: a streaming query from the topic to Parquet by month, and its results."""

from __future__ import annotations

import os
import sys
import time
from ast import literal_eval
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.flights.data import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = (
    "id STRING, year INT, month INT, day INT, dep_delay INT, arr_delay INT, carrier STRING,"
    " flight INT, tailnum STRING, origin STRING, dest STRING, distance INT, hour INT, minute INT"
)
ROWS_PER_BATCH = 100_000


def session(log: Path) -> SparkSession:
    """Start Spark on two cores, with its JVM's output in a file."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("flights")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }.items():
        builder = builder.config(key, value)
    with _errors_into(log):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Make processes started in the block inherit this file as their standard error."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@dataclass
class Stream:
    """The query from a topic to Parquet.

    Args:
        spark: the session.
        name_server: address of the name server.
        topic: name of the topic.
        folder: directory of the Parquet files and the checkpoint.
    """

    spark: SparkSession
    name_server: str
    topic: str
    folder: Path
    _query: StreamingQuery | None = None
    _read: int = 0

    def start(self) -> None:
        """Start the query, from its checkpoint if there is one."""
        messages = (
            self.spark.readStream.format("rocketmq")
            .option("nameServer", self.name_server)
            .option("topic", self.topic)
            .option("startingOffsets", "earliest")
            .option("columns", "body,keys")
            .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
            .option("timeoutMs", "60000")
            .load()
        )
        self._query = (
            messages.selectExpr(
                f"from_json(cast(body AS string), '{COLUMNS}') AS flight",
                "keys AS key",
                "crc32(body) AS checksum",
            )
            .select("flight.*", "key", "checksum")
            .writeStream.format("parquet")
            .partitionBy("month")
            .option("path", str(self.folder / "parquet"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .start()
        )

    def stop(self) -> None:
        """Stop the query, even in the middle of a batch."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    def await_first_batch(self) -> None:
        """Wait until the query has planned its first batch, and so has found the topic."""
        while not (self.folder / "checkpoint/offsets/0").exists():
            self._raise_failure()
            time.sleep(0.1)

    def _raise_failure(self) -> None:
        failed = self._query.exception() if self._query is not None else None
        if failed is not None:
            raise RuntimeError(f"the streaming query failed: {failed}")

    @property
    def read(self) -> int:
        """Return how many messages the query has read, from its offsets."""
        query = self._query
        if query is not None:
            self._raise_failure()
            progress = query.lastProgress
            if progress is not None and progress.sources[0].endOffset:
                # JSON; Spark 4.1 shows it as Python would.
                self._read = _sum(literal_eval(progress.sources[0].endOffset))
        return self._read

    @property
    def batches(self) -> int:
        """Return the number of finished batches."""
        return sum(
            not path.name.startswith(".") for path in (self.folder / "checkpoint/commits").glob("*")
        )

    def rows(self) -> DataFrame:
        """Read the written rows."""
        return self.spark.read.parquet(str(self.folder / "parquet"))


def _sum(offsets: dict[str, Any]) -> int:
    return sum(
        offset
        for topic, brokers in offsets.items()
        if not topic.startswith("@")
        for queues in brokers.values()
        for offset in queues.values()
    )


def tally(rows: DataFrame) -> tuple[Tally, int]:
    """Count the rows by month, and the distinct keys of all."""
    months = rows.groupBy("month").agg(
        *[
            _expr("count(*) AS count"),
            _expr("sum(checksum) AS checksum"),
            _expr("count(DISTINCT key) AS keys"),
        ]
    )
    found = months.collect()
    held = Tally({row.month: (row["count"], row.checksum) for row in found})
    return held, sum(row["keys"] for row in found)


def delays(rows: DataFrame, by: str) -> pd.DataFrame:
    """Return departure delays in minutes: quartiles, mean, share over 15 minutes, by a column."""
    return (
        rows.where("dep_delay IS NOT NULL")
        .groupBy(by)
        .agg(
            _expr("count(*) AS flights"),
            _expr("avg(dep_delay) AS mean"),
            _expr("percentile_approx(dep_delay, array(0.25, 0.5, 0.75, 0.9)) AS quantiles"),
            _expr("avg(cast(dep_delay > 15 AS int)) AS late"),
        )
        .orderBy(by)
        .toPandas()
    )


def _expr(text: str) -> Any:  # noqa: ANN401 - a Spark column
    from pyspark.sql.functions import expr

    return expr(text)
