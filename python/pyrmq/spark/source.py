"""``format("rocketmq")``: the entry point for Spark, and its registration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyrmq._tables import schema as columns
from pyrmq._tables.options.log_options import LogOptions, directory_of
from pyrmq._tables.options.topic_options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from pyrmq.spark.reading.batch import BatchReader
    from pyrmq.spark.reading.log_files import LogBatchReader, LogStreamReader
    from pyrmq.spark.reading.stream import StreamReader
    from pyrmq.spark.writing.sink import BatchWriter, StreamWriter

__all__ = ["RocketMQDataSource", "register"]


class RocketMQDataSource(DataSource):
    """Topics of Apache RocketMQ as Spark tables and streams.

    Example:
        >>> frame = spark.read.format("rocketmq").option(
        ...     "nameServer", "127.0.0.1:9876").option("topic", "orders").load()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns of option ``columns``, or the default ones."""
        given = self.options
        if directory_of(given) is not None:
            return columns.ddl(LogOptions.column_names(given))
        return columns.ddl(Options.column_names(given), Options.layout_of(given))

    def reader(self, schema: StructType) -> BatchReader | LogBatchReader:
        """Open a batch read of the schema's columns."""
        if directory_of(self.options) is not None:
            from pyrmq.spark.reading.log_files import LogBatchReader

            return LogBatchReader(LogOptions.parse(self.options, batch=True), schema)
        from pyrmq.spark.reading.batch import BatchReader

        return BatchReader(Options.parse(self.options, batch=True), schema)

    def streamReader(self, schema: StructType) -> StreamReader | LogStreamReader:
        """Open a stream of the schema's columns."""
        if directory_of(self.options) is not None:
            from pyrmq.spark.reading.log_files import LogStreamReader

            return LogStreamReader(LogOptions.parse(self.options, batch=False), schema)
        from pyrmq.spark.reading.stream import StreamReader

        return StreamReader(Options.parse(self.options, batch=False), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001
        """Open a write of a frame."""
        from pyrmq.spark.writing.sink import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001
        """Open the write of one batch of a stream."""
        from pyrmq.spark.writing.sink import StreamWriter

        return StreamWriter(dict(self.options), schema, overwrite=overwrite)


def register(spark: SparkSession) -> None:
    """Register ``format("rocketmq")`` and the table function ``rocketmq(...)`` in a session.

    The format needs it only if automatic registration fails: Spark looks once for installed modules
    named ``pyspark_*``, and one broken module among them hides all.

    Raises:
        ConfigError: Spark's workers run another Python than the driver, and it cannot use this
            package.

    Example:
        >>> register(spark)  # doctest: +SKIP
    """
    from pyrmq.spark.table_function import register_function
    from pyrmq.spark.unavailable import check_worker

    # Spark Connect has no SparkContext; the workers belong to its server.
    if hasattr(spark, "_jsc"):
        check_worker(spark.sparkContext.pythonExec)
    spark.dataSource.register(RocketMQDataSource)
    register_function(spark)
