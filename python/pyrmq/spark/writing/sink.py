"""The sink: rows become messages, at least once or exactly once.

A task sends its rows from Arrow batches and returns when all are stored. At least once: a task or
batch that Spark runs again sends its rows again. Exactly once: every message has its row's name
(stamps.py). A task that may have sent before reads back what the topic got since the batch was
begun (fence.py), and sends what is missing.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyrmq._tables.errors import FenceError, OptionError
from pyrmq.spark.writing.fence import Begun, Fence
from pyrmq.spark.writing.stamps import Stamps
from pyrmq.spark.writing.task import Sent, Task, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StreamWriter"]

_MASK = 2**64 - 1
_RESTORED = (
    "the query's checkpoint was restored, or the input is not deterministic. Restore this directory"
    " with the checkpoint, or delete it: then rows that the topic got since then are sent again"
)


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a frame to a topic once.

    In foreachBatch Spark writes the frame of a batch again when the batch is run again. Rows are
    named by query and batch then, and the fence is in the directory of checkpointLocation.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.job = uuid.uuid4().hex
        self.begun = self._begin(self._fence())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows; nothing if its batch is already in the topic."""
        task = Task.here()
        if self.begun is None or task.batch < 0:
            # Not a batch of a query: only its tasks can be run again.
            alone = replace(task, query=self.job, batch=0)
            return self._send(iterator, alone, self.begun)
        if self.options.checkpoint is None:
            raise OptionError(
                "checkpointLocation",
                "is missing: delivery=exactly-once in foreachBatch keeps its fence there; name a"
                " directory that no other write uses",
            )
        self._check_query(self.begun, task)
        if task.batch <= self.begun.done:
            return self._skipped(iterator, task)
        return self._send(iterator, task, self.begun)

    def _skipped(self, rows: Iterator[pa.RecordBatch], task: Task) -> Sent:
        """Count and hash the rows of a batch that is in the topic."""
        stamps = Stamps("")
        for table in rows:
            if table.num_rows:
                stamps.of(self._messages(table))
        return Sent(0, stamps.rows, 0, task, stamps.digest)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Record that the batch of a query is in the topic.

        Raises:
            FenceError: a batch of this number was sent before, with other rows.
        """
        fence = self._fence()
        done = [sent for sent in messages if isinstance(sent, Sent) and sent.task]
        task = done[0].task if done else None
        if fence is None or self.begun is None or task is None or task.batch < 0:
            return
        count = sum(sent.rows + sent.there + sent.bad for sent in done)
        digest = sum(sent.digest for sent in done) & _MASK
        rows = (count, f"{digest:016x}")
        if task.batch > self.begun.done:
            fence.commit(task.batch, task.query, task.run, rows)
        elif self.begun.rows is not None and self.begun.rows != rows:
            raise FenceError(
                f"{self.options.checkpoint} says that batch {task.batch} was sent with"
                f" {self.begun.rows[0]} rows, and this one has {count} or other ones: {_RESTORED}"
            )

    def _check_query(self, begun: Begun, task: Task) -> None:
        """Refuse a fence of another query or write, which would leave out rows."""
        if begun.query is not None and begun.query != task.query:
            raise FenceError(
                f"{self.options.checkpoint} belongs to query {begun.query}, this is {task.query}:"
                " use a separate directory for each query"
            )
        if begun.rows is not None and task.batch < begun.done:
            raise FenceError(
                f"{self.options.checkpoint} says that batch {begun.done} was sent, and this is"
                f" batch {task.batch}: {_RESTORED}"
            )
        if begun.done == task.batch and begun.run == task.run:
            raise FenceError(
                f"batch {task.batch} is written twice with {self.options.checkpoint}: each write"
                " in foreachBatch needs its own checkpointLocation"
            )

    def _fence(self) -> Fence | None:
        options = self.options
        if not options.exactly_once or options.checkpoint is None:
            return None
        assert options.topic is not None
        return Fence(options.checkpoint, options.topic, of_query=False)


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a stream to a topic."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.begun = self._begin(self._fence())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows; nothing if its batch is already in the topic."""
        task = Task.here()
        if self.begun is not None:
            if not task.query or task.batch < 0:
                raise OptionError(
                    "delivery", "exactly-once needs a streaming query; Spark named none here"
                )
            if task.batch <= self.begun.done:
                return Sent(0, sum(table.num_rows for table in iterator), 0, task)
        return self._send(iterator, task, self.begun)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Record that the batch is in the topic."""
        fence = self._fence()
        if fence is not None:
            fence.commit(batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: sent messages stay, and the batch is run again."""

    def _fence(self) -> Fence | None:
        options = self.options
        if not options.exactly_once:
            return None
        assert options.topic is not None
        if options.checkpoint is None:
            raise OptionError(
                "checkpointLocation", "is missing: delivery=exactly-once keeps its fence there"
            )
        return Fence(options.checkpoint, options.topic)
