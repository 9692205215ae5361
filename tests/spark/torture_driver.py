"""A driver to be killed: takes a topic to another one, or to files, until what was there is done.

python -m tests.spark.torture_driver NAME_SERVER SOURCE TARGET FOLDER DELIVERY

The checkpoint is below FOLDER, and so are the files of DELIVERY parquet. Prints `planned` when the
first batch of this run has its offsets: what is killed before that interrupts nothing.
"""

from __future__ import annotations

import sys
import time

import pyrmq.spark

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(name_server: str, source: str, target: str, folder: str, delivery: str) -> None:
    """Run the query to its end."""
    spark = pyrmq.spark.session(
        "local[2]",
        spark_driver_memory="1g",
        spark_driver_extraJavaOptions=QUICK_JVM,
        spark_sql_shuffle_partitions="2",
    )
    rows = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
        .select("body")
    )
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    if delivery == "parquet":
        writer = writer.format("parquet").option("path", f"{folder}/rows")
    else:
        writer = writer.format("rocketmq").options(
            nameServer=name_server, topic=target, delivery=delivery
        )
    query = writer.trigger(availableNow=True).start()
    while query.isActive and not query.status["isDataAvailable"]:
        time.sleep(0.01)
    sys.stdout.write("planned\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    run(*sys.argv[1:6])
