"""Tables as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyrmq._tables.messages import check_columns
from pyrmq._tables.sender import TableSender
from pyrmq.errors import ConfigError, MessageError
from pyrmq.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq._client.security.credentials import Credentials
    from pyrmq._client.security.tls import Tls
    from pyrmq._tables.sender import BadRow

__all__ = ["send"]

_ROWS = 10_000
_NUMBERS = {"queueid", "delaylevel"}


def send(
    table: Any,  # noqa: ANN401 - whatever has an Arrow stream
    topic: str,
    *,
    name_server: str | None = None,
    group: str = "pyrmq-arrow",
    timeout: float = 30.0,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
) -> int:
    """Send a table's rows as messages, and wait until all are stored.

    Columns: ``body`` (text or bytes, required), ``tags``, ``keys`` (text or a list of texts),
    ``properties`` (map of texts), ``shardingKey`` (rows of one key keep their order), ``queueId``,
    and one of ``delay`` (seconds), ``deliverAt``, ``delayLevel``. Categories (dictionaries), string
    views and integers of any width are also accepted.

    Args:
        table: a pyarrow Table, RecordBatch or RecordBatchReader, or anything with an Arrow stream
            (polars, duckdb, pandas).
        topic: topic of all rows.
        name_server: ``host:port;host:port``; without it NAMESRV_ADDR.
        group: producer group.
        timeout: seconds that a message may take to be stored, retries included.
        credentials: the user, as for all clients; without it PYRMQ_CREDENTIALS.
        tls: how to connect, as for all clients; without it the credentials or PYRMQ_TLS decide.

    Returns:
        How many messages were sent.

    Raises:
        ConfigError: a column is missing, unknown, or of another type.
        MessageError: a row cannot be a message; rows before and after it may have been sent.
        RmqError: messages could not be stored; others may be.

    Example:
        >>> send(polars.DataFrame({"body": ["a", "b"]}), "orders")  # doctest: +SKIP
        2
    """
    reader = _plain(_reader(table))
    names = check_columns({field.name: _type_of(field.type) for field in reader.schema})
    names.pop("topic", None)
    count = 0
    with Producer(
        name_server=name_server,
        group=group,
        send_timeout=timeout,
        credentials=credentials,
        tls=tls,
    ) as producer:
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


def _plain(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Convert columns to the types of messages: no views, categories and wide numbers."""
    schema = pa.schema(
        [pa.field(field.name, _plain_type(field.name, field.type)) for field in reader.schema]
    )
    if schema.types == reader.schema.types:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            arrays = [_cast(*column) for column in zip(schema, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain_type(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(name, kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_integer(kind) and name.lower() in _NUMBERS:
        return pa.int32()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_plain_type(name, kind.value_type))
    return kind


def _cast(field: pa.Field, array: pa.Array) -> pa.Array:
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"column {field.name}: {error}") from error


def _type_of(kind: pa.DataType) -> str:
    """Return an Arrow type's name for `check_columns`."""
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
