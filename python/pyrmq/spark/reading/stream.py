"""The streaming read for Spark: `planning/progress.py` decides, this translates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from pyrmq._tables import worker
from pyrmq._tables.offsets import parse_version
from pyrmq._tables.options.option_values import LARGEST
from pyrmq._tables.planning.progress import Progress
from pyrmq.spark.reading.batch import RangePartition
from pyrmq.spark.reading.schema import arrow_schema, projection
from pyrmq.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from pyrmq._tables.brokers.remote import RemoteCluster
    from pyrmq._tables.options.topic_options import Options

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    from pyrmq.spark.reading.before42 import (  # type: ignore[assignment]
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

__all__ = ["ReadAllAvailable", "ReadMaxRows", "StreamReader", "SupportsTriggerAvailableNow"]

_log = logging.getLogger("pyrmq.spark")


class StreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch, from a position in Spark's checkpoint."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._progress: Progress | None = None
        self._cluster: RemoteCluster | None = None
        projection(schema, options.layout)

    def shipped(self) -> dict[str, Any]:
        """Keep connections and progress on the driver: executors only read."""
        kept: dict[str, Any] = {"_progress": None, "_cluster": None}
        return {**self.__dict__, **kept, "options": self.options.of_tasks()}

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins."""
        return self._planning().initial()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` itself when there is nothing new."""
        unlimited = isinstance(limit, ReadAllAvailable)
        rows = getattr(limit, "max_rows", None)
        if rows is None:
            rows = 0 if unlimited else self.options.max_offsets_per_trigger
        return self._planning().latest(start, limit=rows, wait_for_more=not unlimited)

    def getDefaultReadLimit(self) -> ReadAllAvailable | ReadMaxRows:
        """Return the limit of ``maxOffsetsPerTrigger``; ``maxBytesPerTrigger`` applies as well."""
        rows = self.options.max_offsets_per_trigger
        if not rows and self.options.max_bytes_per_trigger:
            # Trigger.Once requests all available rows, without limits.
            rows = LARGEST
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the true ends of the queues for the query's progress."""
        return self._planning().report()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the current ends."""
        self._planning().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into tasks."""
        tasks = self._planning().tasks(start, end)
        assert self._cluster is not None
        return RangePartition.of(tasks, self._cluster.addresses())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one task's messages as Arrow batches."""
        worker.freeze_once()
        return worker.batches(
            self.options,
            arrow_schema(self.schema),
            partition.value or (),
            away_ms=self.options.away_ms,
        )

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the group if the options ask for it; the query relies on the checkpoint."""
        if not self.options.commit_to_group:
            return
        self._planning()
        assert self._cluster is not None
        failed = self._cluster.commit(parse_version(end).offsets)
        if failed:
            _log.warning("group %s: not committed: %s", self.options.group, "; ".join(failed[:3]))

    def stop(self) -> None:
        """Close the driver's connections."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = self._progress = None

    def _planning(self) -> Progress:
        if self._progress is None:
            from pyrmq._tables.brokers.remote import RemoteCluster

            self._cluster = RemoteCluster(self.options)
            self._progress = Progress(self.options, self._cluster)
        return self._progress
