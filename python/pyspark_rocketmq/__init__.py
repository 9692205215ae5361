"""Found by Spark because of its name: registers ``format("rocketmq")``.

It must never raise: one broken ``pyspark_*`` module makes Spark forget all of them.
"""

import contextlib

with contextlib.suppress(Exception):
    import pyarrow as pyarrow

    from pyrmq.spark.source import RocketMQDataSource as DefaultSource  # noqa: F401
