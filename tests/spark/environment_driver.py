"""A Spark program whose executors are processes of their own, with a `PYRMQ_CREDENTIALS` of theirs.

``python -m tests.spark.environment_driver NAME_SERVER RIGHT WRONG`` reads the topic `secured` and
writes to `copied` without an option about users, once for each credentials file of the executors.
It prints a line of JSON for each: the rows that were read, or the error.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

__all__ = ["main"]


def main(name_server: str, *files: str) -> None:
    """Read and write with one session for each file."""
    for file in files:
        builder = SparkSession.builder.master("local-cluster[1,1,512]")
        settings = {
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYRMQ_CREDENTIALS": file,
            "spark.task.maxFailures": "1",
            "spark.ui.enabled": "false",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        options = {"nameServer": name_server, "timeoutMs": "5000"}
        found: dict[str, object] = {}
        try:
            frame = spark.read.format("rocketmq").options(topic="secured", **options).load()
            found["rows"] = sorted(int(bytes(row.body)) for row in frame.select("body").collect())
            frame.select("body").write.format("rocketmq").mode("append").options(
                topic="copied", **options
            ).save()
        except PySparkException as error:
            found["error"] = str(error)
        finally:
            spark.stop()
        print(json.dumps(found))  # noqa: T201 - the result


if __name__ == "__main__":
    main(*sys.argv[1:])
