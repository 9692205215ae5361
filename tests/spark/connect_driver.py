"""A program under Spark Connect: reads, streams and writes, and prints what it saw as JSON.

python -m tests.spark.connect_driver NAME_SERVER SOURCE TARGET FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import pyrmq.spark
from pyrmq.errors import ConfigError


def run(name_server: str, source: str, target: str, folder: Path) -> dict[str, Any]:
    """Do everything once, and return what came of it."""
    builder = SparkSession.builder.remote("local[2]")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    seen: dict[str, Any] = {"session": type(spark).__module__}
    messages = spark.read.format("rocketmq").option("nameServer", name_server).load(source)
    seen["read"] = sorted(bytes(row.body).decode() for row in messages.select("body").collect())
    frame = spark.createDataFrame([("written", "k")], "body STRING, keys STRING")
    sink = frame.selectExpr("body", "array(keys) AS keys").write.format("rocketmq").mode("append")
    sink.option("nameServer", name_server).option("topic", target).save()
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("startingOffsets", "earliest")
        .load(source)
    )
    query = (
        stream.selectExpr("concat('streamed ', cast(body AS string)) AS body")
        .writeStream.format("rocketmq")
        .options(nameServer=name_server, topic=target, delivery="exactly-once")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    lag = pyrmq.spark.lag(query)
    seen["lag"] = None if lag is None else lag.rows
    good, bad = pyrmq.spark.json(messages.where("body LIKE '{%'"), "id INT NOT NULL")
    seen["json"] = [good.select("id").collect()[0].id, bad.count()]
    pyrmq.spark.register(spark)
    function = f"rocketmq('{source}', name_server => '{name_server}')"
    seen["function"] = spark.sql(f"SELECT count(*) AS n FROM {function}").collect()[0].n
    for name, call in (
        ("listen", lambda: pyrmq.spark.listen(spark)),
        ("doctor", lambda: pyrmq.spark.examine_executors(spark, name_server)),
    ):
        try:
            call()
        except ConfigError as error:
            seen[name] = str(error)
        else:
            seen[name] = "done"
    spark.stop()
    return seen


if __name__ == "__main__":
    outcome = run(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    sys.stdout.write(json.dumps(outcome) + "\n")
