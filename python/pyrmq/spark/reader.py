"""The batch read. Offsets are fixed at planning and travel in the tasks: a retry reads the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyrmq.spark import cluster as clusters
from pyrmq.spark import worker
from pyrmq.spark.errors import OffsetError
from pyrmq.spark.plan import rows, take
from pyrmq.spark.progress import tasks_of
from pyrmq.spark.schema import projection
from pyrmq.spark.worker import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyrmq.spark.offsets import Bounds, Offsets, Queue
    from pyrmq.spark.options import Options
    from pyrmq.spark.plan import Range

__all__ = ["BatchReader", "RangePartition"]


class RangePartition(InputPartition):
    """One task's ranges and where their brokers are."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(parts)

    @classmethod
    def of(cls, tasks: list[list[Range]], addresses: dict[str, str]) -> list[InputPartition]:
        """Return one partition a task."""
        return [
            cls(tuple(Part(addresses[piece.queue.broker], piece) for piece in task))
            for task in tasks
        ]


class BatchReader(DataSourceReader):
    """Reads from one position to another, once."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        projection(schema)

    def partitions(self) -> list[InputPartition]:
        """Find start and end and cut what lies between into tasks.

        Raises:
            OffsetError: a queue's start lies behind its end, or its end behind what it holds.
            DataLossError: a part has expired.
            ConnectionLost: nobody answers.
        """
        from pyrmq.spark.remote import RemoteCluster

        cluster = RemoteCluster(self.options)
        try:
            bounds = clusters.bounds_of(self.options, cluster)
            start = clusters.starting(self.options, cluster, bounds)
            end = clusters.ending(self.options, cluster, bounds)
            tasks = tasks_of(self.options, start, self._held(end, bounds), bounds)
            return RangePartition.of(self._limited(tasks), cluster.addresses())
        finally:
            cluster.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield one task's messages as Arrow batches; Spark 4.1 has a task without a partition."""
        parts: tuple[Part, ...] = () if partition is None else partition.value or ()
        return worker.batches(self.options, self.schema, parts, limit=self.options.limit)

    def _held(self, end: Offsets, bounds: Mapping[Queue, Bounds]) -> Offsets:
        held = {}
        for queue, offset in end.items():
            highest = bounds[queue].highest
            if offset > highest and self.options.fail_on_data_loss:
                raise OffsetError(
                    f"{queue}: endingOffsets has {offset},"
                    f" it holds {bounds[queue].lowest} to {highest}"
                )
            held[queue] = min(offset, highest)
        return held

    def _limited(self, tasks: list[list[Range]]) -> list[list[Range]]:
        limit = self.options.limit
        flat = [part for task in tasks for part in task]
        if not limit or rows(flat) <= limit:
            return tasks
        if self.options.tags != "*":
            # How many messages a range yields is known only when it is read: one task counts.
            return [flat]
        return [take(flat, limit)]
