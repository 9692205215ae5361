"""Write a topic to Parquet files, exactly once, from one run to the next.

    python examples/spark_stream.py 127.0.0.1:9876 orders /data/orders

It runs until all current messages are written, and continues from there the next time: start it
from cron, or remove the trigger and let it run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def to_parquet(spark: SparkSession, name_server: str, topic: str, folder: str) -> StreamingQuery:
    """Start the query: message time, key and text, in files by day."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "body,keys,storeTimestamp")
        .load()
    )
    return (
        messages.selectExpr(
            "storeTimestamp AS stored",
            "keys AS key",
            "cast(body AS string) AS text",
            "cast(storeTimestamp AS date) AS day",
        )
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").getOrCreate()
    to_parquet(session, *sys.argv[1:4]).awaitTermination()
