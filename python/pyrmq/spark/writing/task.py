"""One task of a write: sends its rows from Arrow batches, and counts them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pyrmq._tables import kafka
from pyrmq._tables.errors import OptionError, SchemaError
from pyrmq._tables.messages import COLUMNS, DELAYS, check_columns
from pyrmq._tables.options.sink_options import SinkOptions
from pyrmq._tables.sender import BadRow, TableSender
from pyrmq.errors import ConfigError, MessageError
from pyrmq.producer import Producer
from pyrmq.spark.shipping import Shipped
from pyrmq.spark.writing.fence import Begun, Fence
from pyrmq.spark.writing.readback import names_in_topic, topic_ends
from pyrmq.spark.writing.stamps import PROPERTY, Stamps, missing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

    from pyrmq._tables.options.security import Security

__all__ = ["Sent", "Task", "Writer"]

_producers: dict[tuple[int, str, str, bool, Security], Producer] = {}
_SHOWN = 200
_BAD_ROW_BYTES = (4 << 20) - (64 << 10)
"""A bad row is cut to this size, which leaves space for properties in a message of default size."""
_RETRIES = 2


@dataclass(frozen=True)
class Task:
    """The position of a task among all tasks of its query; a single write has query and batch 0."""

    query: str
    batch: int
    partition: int
    attempt: int
    run: str = ""

    @classmethod
    def here(cls) -> Task:
        """Return this task's position; outside streaming it has no query."""
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
    """The result of a task.

    Attributes:
        rows: rows that it stored.
        there: rows that were already in the topic.
        bad: rows that went to the topic of option onBadRow.
        task: its position.
        digest: sum of the hashes of all its rows, if they have names.
    """

    rows: int
    there: int
    bad: int
    task: Task | None = None
    digest: int = 0


class Writer(Shipped):
    """Common part of the writes of frames and of streams."""

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
                f"exactly-once is not possible with column {delays[0]}: a delayed message is not in"
                " its topic when a task reads back what it has sent; use at-least-once",
            )

    def _send(
        self, rows: Iterator[pa.RecordBatch], task: Task, begun: Begun | None
    ) -> WriterCommitMessage:
        sender = TableSender(
            _producer(self.options), self._names_sent(), self.options.topic, self.options.timeout_ms
        )
        stamps = None if begun is None else Stamps(f"{task.query}.{task.batch}.{task.partition}")
        there: set[str] = set()
        if begun is not None and stamps is not None and (begun.again or task.attempt > 0):
            assert self.options.topic is not None
            there = names_in_topic(
                self.options, self.options.topic, begun.ends, begun.brokers, stamps.prefix
            )
        sent = Sent(0, 0, 0, task)
        try:
            for table in rows:
                if table.num_rows:
                    self._send_table(sender, self._messages(table), stamps, there, sent)
            self._handle_bad_rows(sender.flush(), sent)
        except Exception:
            # Messages stored after the next attempt has read back would be sent twice.
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
                f"layout=kafka: a key or a header is not UTF-8, which properties must be:"
                f" {error}; encode it, for example with base64()",
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
        self._handle_bad_rows(sender.send(table, more), sent)

    def _handle_bad_rows(self, bad: list[BadRow], sent: Sent) -> None:
        """Fail on rows that cannot be messages, or send them to the topic of the option."""
        if not bad:
            return
        if self.options.bad_row_topic is None:
            row = bad[0]
            raise MessageError(
                f"row {_shown(row)[:_SHOWN]}: {row.reason}. Option onBadRow=TOPIC sends such rows"
                " to a separate topic",
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
        """Record where the topic ends before the first task sends."""
        options = self.options
        if not options.exactly_once:
            return None
        topic = options.topic
        assert topic is not None
        if fence is None:
            ends = topic_ends(options, topic)
            brokers = tuple(sorted({queue.broker for queue in ends}))
            return Begun(-1, ends, again=False, brokers=brokers)
        return fence.begin(lambda is_known: topic_ends(options, topic, is_known=is_known))


def _producer(options: SinkOptions) -> Producer:
    """Return this process's producer: a forked worker cannot use its parent's."""
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
