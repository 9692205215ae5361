"""Tables as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyrmq.errors import MessageError
from pyrmq.producer import Producer
from pyrmq.spark.messages import check_columns
from pyrmq.spark.sender import TableSender

if TYPE_CHECKING:
    from pyrmq.spark.sender import BadRow

__all__ = ["send"]

_ROWS = 10_000


def send(
    table: Any,  # noqa: ANN401 - whatever has an Arrow stream
    topic: str,
    *,
    name_server: str | None = None,
    group: str = "pyrmq-arrow",
    timeout: float = 30.0,
) -> int:
    """Send a table's rows as messages, and wait until all are stored.

    Columns: ``body`` (text or bytes, required), ``tags``, ``keys`` (text or a list of texts),
    ``properties`` (map of texts), ``shardingKey`` (rows of one key keep their order), ``queueId``,
    and one of ``delay`` (seconds), ``deliverAt``, ``delayLevel``.

    Args:
        table: a pyarrow Table, RecordBatch or RecordBatchReader, or anything with an Arrow stream
            (polars, duckdb, pandas).
        topic: topic of all rows.
        name_server: ``host:port;host:port``; without it NAMESRV_ADDR.
        group: producer group.
        timeout: seconds that a message may take to be stored, retries included.

    Returns:
        How many messages were sent.

    Raises:
        ConfigError: a column is missing, unknown, or of another type.
        MessageError: a row is no message; rows before and behind it may have been sent.
        RmqError: messages could not be stored; others may be.

    Example:
        >>> send(polars.DataFrame({"body": ["a", "b"]}), "orders")  # doctest: +SKIP
        2
    """
    reader = _reader(table)
    names = check_columns({field.name: _type_of(field.type) for field in reader.schema})
    names.pop("topic", None)
    count = 0
    with Producer(name_server=name_server, group=group, send_timeout=timeout) as producer:
        sender = TableSender(producer, names, topic, round(timeout * 1000))
        for batch in reader:
            for first in range(0, batch.num_rows, _ROWS):
                part = batch.slice(first, _ROWS)
                _check(sender.send(part))
                count += part.num_rows
        _check(sender.flush())
    return count


def _check(bad: list[BadRow]) -> None:
    if bad:
        row = bad[0]
        content = row.table.slice(row.row, 1).to_pylist()[0]
        raise MessageError(f"row {content!r:.200}: {row.reason}", topic=row.topic or "")


def _reader(table: Any) -> pa.RecordBatchReader:  # noqa: ANN401 - as `send` takes it
    if isinstance(table, pa.RecordBatchReader):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(table.schema, [table])
    if isinstance(table, pa.Table):
        return table.to_reader()
    return pa.RecordBatchReader.from_stream(table)


def _type_of(kind: pa.DataType) -> str:
    """Spell an Arrow type as `check_columns` wants it."""
    types = pa.types
    names = [
        (types.is_string, "string"),
        (types.is_large_string, "string"),
        (types.is_binary, "binary"),
        (types.is_large_binary, "binary"),
        (types.is_int32, "int"),
        (types.is_int64, "bigint"),
        (types.is_float32, "float"),
        (types.is_float64, "double"),
        (types.is_timestamp, "timestamp"),
    ]
    for is_one, name in names:
        if is_one(kind):
            return name
    if types.is_map(kind):
        return f"map<{_type_of(kind.key_type)},{_type_of(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{_type_of(kind.value_type)}>"
    return str(kind)
