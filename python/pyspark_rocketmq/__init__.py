"""Found by Spark because of its name: registers ``format("rocketmq")``.

It must never raise: one broken ``pyspark_*`` module makes Spark forget all of them. What cannot be
imported is said when the format is used. Without pyspark there is nobody to say it to.
"""

import contextlib

with contextlib.suppress(ImportError):
    import pyspark as pyspark

    try:
        import pyarrow as pyarrow

        from pyrmq.spark.source import RocketMQDataSource as DefaultSource
    except Exception as error:  # noqa: BLE001 - whatever it is, the user reads it on first use
        from pyrmq.spark.unavailable import unavailable

        DefaultSource = unavailable(error)  # type: ignore[assignment,misc]
