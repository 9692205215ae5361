"""The batch read. Offsets are fixed at planning and sent with the tasks, so a retry reads the same.

A reader accepts no conditions (`pushFilters`). Up to Spark 4.2 `PythonDataSourceV2` keeps one
planned read for each frame or view, `setReadInfo`, and later queries without conditions get it:
they would read only what the first query's conditions chose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyrmq._tables import worker
from pyrmq._tables.batch import planned
from pyrmq._tables.worker import Part
from pyrmq.spark.reading.schema import arrow_schema, projection
from pyrmq.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.plan import Range

__all__ = ["BatchReader", "RangePartition"]


class RangePartition(InputPartition):
    """One task's ranges and where their brokers are."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(parts)

    @classmethod
    def of(cls, tasks: list[list[Range]], addresses: dict[str, str]) -> list[InputPartition]:
        """Return one partition per task."""
        return [
            cls(tuple(Part(addresses[piece.queue.broker], piece) for piece in task))
            for task in tasks
        ]


class BatchReader(Shipped, DataSourceReader):
    """Reads from one position to another, once."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        projection(schema, options.layout)

    def shipped(self) -> dict[str, Any]:
        """Keep the options of planning on the driver."""
        return {**self.__dict__, "options": self.options.of_tasks()}

    def partitions(self) -> list[InputPartition]:
        """Find start and end, and cut the range between them into tasks.

        Raises:
            OffsetError: a queue's start is after its end, or its end after its last message.
            DataLossError: a part has expired.
            BrokerAway: a broker does not answer.
        """
        tasks, addresses = planned(self.options)
        return RangePartition.of(tasks, addresses)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield one task's messages as Arrow batches; Spark 4.1 has a task without a partition."""
        parts: tuple[Part, ...] = () if partition is None else partition.value or ()
        worker.freeze_once()
        return worker.batches(
            self.options,
            arrow_schema(self.schema),
            parts,
            away_ms=self.options.timeout_ms,
            limit=self.options.limit,
        )
