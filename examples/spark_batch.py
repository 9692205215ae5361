"""Count a topic's messages by tag with Spark, once.

python examples/spark_batch.py 127.0.0.1:9876 orders
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def by_tag(spark: SparkSession, name_server: str, topic: str) -> DataFrame:
    """Return tag, messages and bytes. Only the two named columns are fetched."""
    from pyspark.sql.functions import expr

    messages = (
        spark.read.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", topic)
        .option("columns", "tags,body")
        .load()
    )
    return (
        messages.selectExpr("coalesce(tags, 'none') AS tag", "length(body) AS bytes")
        .groupBy("tag")
        .agg(expr("count(*) AS messages"), expr("sum(bytes) AS bytes"))
        .orderBy("tag")
    )


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[*]").getOrCreate()
    by_tag(session, sys.argv[1], sys.argv[2]).show()
