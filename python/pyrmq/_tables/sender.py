"""Sends tables of messages: encoded in Rust, several tables in flight, outcomes by row."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq import _core
from pyrmq._tables.messages import encode, faults
from pyrmq.errors import MessageError, MessageRefused, RouteError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq.producer import Producer

__all__ = ["BadRow", "TableSender"]

_ON_THEIR_WAY = 4
_BATCH_BYTES = 1 << 20
_SEND_MS = 30_000


class BadRow(NamedTuple):
    """A row that cannot be a message.

    Attributes:
        table: its table.
        row: its number in the table.
        topic: its topic, if it has one.
        reason: why not.
    """

    table: pa.RecordBatch
    row: int
    topic: str | None
    reason: str


class _OnItsWay(NamedTuple):
    send: _core.TableSend
    part: pa.RecordBatch
    more: Mapping[str, pa.Array]
    table: pa.RecordBatch
    rows: pa.Array | None
    topic: str


class TableSender:
    """Sends tables over a producer.

    Args:
        producer: sends the messages, with its retries and limits.
        names: the columns, from `pyrmq._tables.messages.check_columns`.
        topic: topic of all rows; None: column ``topic`` has it.
        timeout_ms: milliseconds for each frame of messages, retries included.
    """

    def __init__(
        self,
        producer: Producer,
        names: Mapping[str, str],
        topic: str | None,
        timeout_ms: int = _SEND_MS,
    ) -> None:
        self._producer = producer
        self._names = {name: written for name, written in names.items() if name != "topic"}
        self._topic_column = names.get("topic")
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._sent: deque[_OnItsWay] = deque()

    def send(
        self, table: pa.RecordBatch, more: Mapping[str, pa.Array] | None = None
    ) -> list[BadRow]:
        """Send a table; wait for the oldest one if several are in flight.

        Args:
            table: the rows.
            more: further properties of the messages, by name, a value for each row.

        Returns:
            Rows that cannot be messages, of this table or of earlier ones.

        Raises:
            RmqError: messages could not be sent.
        """
        bad: list[BadRow] = []
        if self._topic is not None:
            bad += self._launch(table, None, self._topic, more)
        else:
            bad += self._launch_by_topic(table, more)
        while len(self._sent) > _ON_THEIR_WAY:
            bad += self._finish_oldest()
        return bad

    def flush(self) -> list[BadRow]:
        """Wait for everything; returns and raises as `send`."""
        bad: list[BadRow] = []
        while self._sent:
            bad += self._finish_oldest()
        return bad

    def settle(self) -> None:
        """Wait until nothing is in flight, whatever the outcome: at most `timeout_ms`."""
        while self._sent:
            self._sent.popleft().send.wait()

    def _launch_by_topic(
        self, table: pa.RecordBatch, more: Mapping[str, pa.Array] | None
    ) -> list[BadRow]:
        assert self._topic_column is not None
        column = table.column(self._topic_column)
        bad = [
            BadRow(table, row, None, "the topic is NULL, and there is no option topic")
            for row in pc.indices_nonzero(pc.is_null(column)).to_pylist()
        ]
        for topic in pc.unique(column.drop_null()).to_pylist():
            rows = pc.indices_nonzero(pc.fill_null(pc.equal(column, topic), fill_value=False))
            if len(rows) == table.num_rows:
                bad += self._launch(table, None, topic, more)
                continue
            part = {name: array.take(rows) for name, array in (more or {}).items()}
            bad += self._launch(table, rows, topic, part)
        return bad

    def _launch(
        self,
        table: pa.RecordBatch,
        rows: pa.Array | None,
        topic: str,
        more: Mapping[str, pa.Array] | None,
    ) -> list[BadRow]:
        part = table if rows is None else table.take(rows)
        bad = []
        if wrong := faults(part, self._names):
            kept = pa.array(sorted({*range(part.num_rows)}.difference(wrong)), pa.int64())
            numbers = list(wrong) if rows is None else rows.take(pa.array(list(wrong))).to_pylist()
            reasons = zip(numbers, wrong.values(), strict=True)
            bad = [BadRow(table, row, topic, reason) for row, reason in reasons]
            part, rows = part.take(kept), kept if rows is None else rows.take(kept)
            more = {name: array.take(kept) for name, array in (more or {}).items()}
        send = self._start(part, more or {}, topic)
        self._sent.append(_OnItsWay(send, part, more or {}, table, rows, topic))
        return bad

    def _start(
        self, part: pa.RecordBatch, more: Mapping[str, pa.Array], topic: str
    ) -> _core.TableSend:
        encoded = encode(part, self._names, more)
        return _core.send_table(
            self._producer._batcher,
            topic,
            encoded.rows,
            encoded.body,
            encoded.properties,
            encoded.pairs,
            encoded.queues,
            _BATCH_BYTES,
            self._timeout_ms,
        )

    def _finish_oldest(self) -> list[BadRow]:
        return self._finish(self._sent.popleft())

    def _finish(self, sent: _OnItsWay) -> list[BadRow]:
        bad: list[BadRow] = []
        refused: list[tuple[int, MessageRefused]] = []
        for row, error in sent.send.wait():
            if isinstance(error, MessageRefused):
                refused.append((row, error))
            elif isinstance(error, MessageError | ValueError) or self._has_no_queue(
                sent, row, error
            ):
                bad.append(self._bad(sent, row, error))
            else:
                raise error
        if len(refused) == 1:
            return [*bad, self._bad(sent, *refused[0])]
        # A broker refuses a batch of messages as a whole, and stores none of it: halves find out
        # which message it was.
        middle = len(refused) // 2
        for half in (refused[:middle], refused[middle:]):
            if half:
                bad += self._finish(self._again(sent, [row for row, _ in half]))
        return bad

    def _again(self, sent: _OnItsWay, numbers: list[int]) -> _OnItsWay:
        chosen = pa.array(numbers, pa.int64())
        part = sent.part.take(chosen)
        more = {name: array.take(chosen) for name, array in sent.more.items()}
        rows = chosen if sent.rows is None else sent.rows.take(chosen)
        send = self._start(part, more, sent.topic)
        return _OnItsWay(send, part, more, sent.table, rows, sent.topic)

    def _has_no_queue(self, sent: _OnItsWay, row: int, error: Exception) -> bool:
        """Return whether a row names a queue that no broker of its topic has."""
        name = self._names.get("queueId")
        if not isinstance(error, RouteError) or name is None:
            return False
        queue_id = sent.part.column(name)[row].as_py()
        numbers = [number for _, _, number in self._producer._core.queues(sent.topic)]
        return queue_id is not None and bool(numbers) and queue_id > max(numbers)

    @staticmethod
    def _bad(sent: _OnItsWay, row: int, error: Exception) -> BadRow:
        number = row if sent.rows is None else sent.rows[row].as_py()
        return BadRow(sent.table, number, sent.topic, str(error))
