"""Write alerts from one topic to another, exactly once, from one run to the next.

    pyrmq topic create alerts
    python examples/spark_write.py 127.0.0.1:9876 orders alerts /data/alerts

It runs until all current messages are processed, and continues from there the next time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def alerts(
    spark: SparkSession, name_server: str, source: str, target: str, folder: str
) -> StreamingQuery:
    """Start the query: orders above 1000 become messages, in order for each customer."""
    orders = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .option("columns", "body,keys")
        .load()
        .selectExpr("keys", "from_json(cast(body AS string), 'customer string, total double') AS o")
    )
    return (
        orders.where("o.total > 1000")
        .selectExpr("to_json(o) AS body", "keys", "'large' AS tags", "o.customer AS shardingKey")
        .writeStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", target)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").getOrCreate()
    alerts(session, *sys.argv[1:5]).awaitTermination()
