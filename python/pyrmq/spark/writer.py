"""The sink: rows become messages, at least once or exactly once.

A task sends its rows from Arrow batches and returns when all are stored. At least once: a task or
batch that Spark runs again sends its rows again. Exactly once: every message carries its row's name
(stamps.py); a task that may have sent before reads back what the topic got since the batch was
begun (fence.py) and sends what is missing.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyrmq._tables import kafka
from pyrmq._tables.errors import FenceError, OptionError, SchemaError
from pyrmq._tables.messages import COLUMNS, DELAYS, check_columns
from pyrmq._tables.options.sink_options import SinkOptions
from pyrmq._tables.sender import BadRow, TableSender
from pyrmq.errors import ConfigError, MessageError
from pyrmq.producer import Producer
from pyrmq.spark.fence import Begun, Fence
from pyrmq.spark.readback import names_in_topic, topic_ends
from pyrmq.spark.shipping import Shipped
from pyrmq.spark.stamps import PROPERTY, Stamps, missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from pyrmq._tables.options.security import Security

__all__ = ["BatchWriter", "Sent", "StreamWriter"]

_log = logging.getLogger("pyrmq.spark")
_producers: dict[tuple[int, str, str, bool, Security], Producer] = {}
_SHOWN = 200
_BAD_ROW_BYTES = (4 << 20) - (64 << 10)
"""A bad row has room for its properties in a message of the default size, and is cut there."""
_RETRIES = 2
_MASK = 2**64 - 1
_RESTORED = (
    "the query's checkpoint was restored, or the input is not deterministic. Restore this directory"
    " with the checkpoint, or delete it: then rows that the topic got since then are sent again"
)


@dataclass(frozen=True)
class _Task:
    """Where a task stands among all tasks of its query; a write of its own is query and batch 0."""

    query: str
    batch: int
    partition: int
    attempt: int
    run: str = ""

    @classmethod
    def here(cls) -> _Task:
        """Return where this task stands; without a query outside of streaming."""
        context = TaskContext.get()
        assert context is not None, "a write runs in a task"
        return cls(
            context.getLocalProperty("sql.streaming.queryId") or "",
            int(context.getLocalProperty("streaming.sql.batchId") or -1),
            context.partitionId(),
            context.attemptNumber(),
            context.getLocalProperty("spark.jobGroup.id") or "",
        )


@dataclass
class Sent(WriterCommitMessage):
    """What a task did.

    Attributes:
        rows: rows that it stored.
        there: rows that were in the topic already.
        bad: rows that went to the topic of option onBadRow.
        task: where it stood.
        digest: sum of the hashes of all its rows, if they have names.
    """

    rows: int
    there: int
    bad: int
    task: _Task | None = None
    digest: int = 0


class _Writer(Shipped):
    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "mode",
                "a topic cannot be overwritten: use mode append (a stream: outputMode append)",
            )
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        layout = kafka.SINK if SinkOptions.is_kafka(given) else COLUMNS
        try:
            self.names = check_columns(types, layout)
        except ConfigError as error:
            raise SchemaError(str(error)) from error
        self.options = SinkOptions.parse(given, has_topic_column="topic" in self.names)
        delays = [name for name in DELAYS if name in self.names]
        if self.options.exactly_once and delays:
            raise OptionError(
                "delivery",
                f"exactly-once cannot be had with column {delays[0]}: a delayed message is not in"
                " its topic when a task reads back what it has sent; use at-least-once",
            )

    def _send(
        self, rows: Iterator[pa.RecordBatch], task: _Task, begun: Begun | None
    ) -> WriterCommitMessage:
        sender = TableSender(
            _producer(self.options), self._names_sent(), self.options.topic, self.options.timeout_ms
        )
        stamps = None if begun is None else Stamps(f"{task.query}.{task.batch}.{task.partition}")
        there: set[str] = set()
        if begun is not None and stamps is not None and (begun.again or task.attempt > 0):
            assert self.options.topic is not None
            there = names_in_topic(self.options, self.options.topic, begun.ends, stamps.prefix)
        sent = Sent(0, 0, 0, task)
        try:
            for table in rows:
                if table.num_rows:
                    self._send_table(sender, self._messages(table), stamps, there, sent)
            self._set_apart(sender.flush(), sent)
        except Exception:
            # What is stored after the next attempt has read back would be sent twice.
            sender.settle()
            raise
        sent.digest = 0 if stamps is None else stamps.digest
        return sent

    def _names_sent(self) -> dict[str, str]:
        if not self.options.kafka_layout:
            return self.names
        return {name: name for name in kafka.sent_columns(self.names)}

    def _messages(self, table: pa.RecordBatch) -> pa.RecordBatch:
        if not self.options.kafka_layout:
            return table
        try:
            return kafka.to_messages(table, self.names)
        except pa.ArrowInvalid as error:
            raise MessageError(
                f"layout=kafka: a key or a header is no UTF-8, which properties of a message are:"
                f" {error}; encode it, as with base64()",
                topic=self.options.topic or "",
            ) from error

    def _send_table(
        self,
        sender: TableSender,
        table: pa.RecordBatch,
        stamps: Stamps | None,
        there: set[str],
        sent: Sent,
    ) -> None:
        more: dict[str, pa.Array] = {}
        if stamps is not None:
            names = stamps.of(table)
            if there:
                rows = pa.array(missing(names, there), pa.int64())
                sent.there += table.num_rows - len(rows)
                table, names = table.take(rows), names.take(rows)
            more[PROPERTY] = names
        sent.rows += table.num_rows
        self._set_apart(sender.send(table, more), sent)

    def _set_apart(self, bad: list[BadRow], sent: Sent) -> None:
        """Fail on rows that are no messages, or send them where the option says."""
        if not bad:
            return
        if self.options.bad_row_topic is None:
            row = bad[0]
            raise MessageError(
                f"row {_shown(row)[:_SHOWN]}: {row.reason}. Option onBadRow=TOPIC sends such rows"
                " to a topic of their own",
                topic=row.topic or "",
            )
        producer = _producer(self.options)
        futures = []
        for row in bad:
            body = _shown(row).encode()
            properties = {
                "pyrmq_reason": row.reason[:_SHOWN],
                "pyrmq_topic": row.topic or "none",
            }
            if len(body) > _BAD_ROW_BYTES:
                properties["pyrmq_bytes"] = str(len(body))
                body = body[:_BAD_ROW_BYTES]
            futures.append(
                producer.send_async(self.options.bad_row_topic, body, properties=properties)
            )
        for future in futures:
            future.result()
        sent.rows -= len(bad)
        sent.bad += len(bad)

    def _begin(self, fence: Fence | None) -> Begun | None:
        """Take note of where the topic ends before the first task sends."""
        options = self.options
        if not options.exactly_once:
            return None
        topic = options.topic
        assert topic is not None
        if fence is None:
            return Begun(-1, topic_ends(options, topic), again=False)
        return fence.begin(lambda: topic_ends(options, topic))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame to a topic once.

    In foreachBatch Spark writes the frame of a batch again when the batch is run again. Rows are
    named by query and batch then, and the fence lies in the directory of checkpointLocation.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.job = uuid.uuid4().hex
        self.begun = self._begin(self._fence())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows; nothing when its batch is in the topic already."""
        task = _Task.here()
        if self.begun is None or task.batch < 0:
            # No batch of a query: nothing runs it again, but for its own tasks.
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

    def _skipped(self, rows: Iterator[pa.RecordBatch], task: _Task) -> Sent:
        """Count the rows of a batch that is in the topic, and take their hash."""
        stamps = Stamps("")
        for table in rows:
            if table.num_rows:
                stamps.of(self._messages(table))
        return Sent(0, stamps.rows, 0, task, stamps.digest)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take note that the batch of a query is in the topic.

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

    def _check_query(self, begun: Begun, task: _Task) -> None:
        """Rows would be left out for another query's batches, or for another write's."""
        if begun.query is not None and begun.query != task.query:
            raise FenceError(
                f"{self.options.checkpoint} belongs to query {begun.query}, this is {task.query}:"
                " use a directory of its own for each query"
            )
        if begun.rows is not None and task.batch < begun.done:
            raise FenceError(
                f"{self.options.checkpoint} says that batch {begun.done} was sent, and this is"
                f" batch {task.batch}: {_RESTORED}"
            )
        if begun.done == task.batch and begun.run == task.run:
            raise FenceError(
                f"batch {task.batch} is written twice with {self.options.checkpoint}: each write"
                " in foreachBatch needs a checkpointLocation of its own"
            )

    def _fence(self) -> Fence | None:
        options = self.options
        if not options.exactly_once or options.checkpoint is None:
            return None
        assert options.topic is not None
        return Fence(options.checkpoint, options.topic, of_query=False)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a stream to a topic."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(given, schema, overwrite=overwrite)
        self.begun = self._begin(self._fence())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send one task's rows; nothing when its batch is in the topic already."""
        task = _Task.here()
        if self.begun is not None:
            if not task.query or task.batch < 0:
                raise OptionError(
                    "delivery", "exactly-once needs a streaming query; Spark named none here"
                )
            if task.batch <= self.begun.done:
                return Sent(0, sum(table.num_rows for table in iterator), 0, task)
        return self._send(iterator, task, self.begun)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Take note that the batch is in the topic."""
        fence = self._fence()
        if fence is not None:
            fence.commit(batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what was sent stays, and the batch is run again."""

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


def _producer(options: SinkOptions) -> Producer:
    """Return this process's producer: a worker is forked, and its parent's is not its own."""
    # The group is in the namespace.
    key = (
        *(os.getpid(), options.name_server, options.group, options.exactly_once),
        options.security,
    )
    if key not in _producers:
        producer = Producer(
            name_server=options.name_server,
            group=options.group,
            namespace=options.namespace,
            send_timeout=options.timeout_ms / 1000,
            **options.security.arguments(),
            # A retry could store a message a second time. The task's next attempt reads back first.
            retries=0 if options.exactly_once else _RETRIES,
        )
        _producers[key] = producer
    return _producers[key]


def _shown(bad: BadRow) -> str:
    row = bad.table.slice(bad.row, 1).to_pylist()[0]
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
