"""A block of native column buffers as Arrow arrays: pyarrow wraps the memory, nothing is copied.

A block's columns are lists of buffers in Arrow's own layout (crates/columns draws it); the first
one is the validity bitmap or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq._core import Block
    from pyrmq.message import MessageBatch

__all__ = ["batch", "of_messages"]

_TIME = pa.timestamp("us", tz="UTC")

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "msgId": pa.string(),
    "bornTimestamp": _TIME,
    "storeTimestamp": _TIME,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "commitLogOffset": pa.int64(),
}
"""Every column of a message, in the order of the Spark source's."""


def of_messages(messages: MessageBatch, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Return messages as a record batch.

    Raises:
        ConfigError: A column does not exist.
    """
    names = [*_TYPES] if columns is None else [*columns]
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise ConfigError(f"unknown columns {unknown}: known are {', '.join(_TYPES)}")
    schema = pa.schema([pa.field(name, _TYPES[name]) for name in names])
    return batch(messages.columns(names), schema)


def batch(block: Block, schema: pa.Schema) -> pa.RecordBatch:
    """Wrap a block whose columns are those of the schema, in order.

    A body as text and keys as a list are converted; nothing else is copied.
    """
    arrays = []
    for field, (nulls, buffers) in zip(schema, block.columns, strict=True):
        if field.name.lower() == "body" and pa.types.is_string(field.type):
            arrays.append(_as_text(_array(pa.binary(), block.rows, nulls, buffers)))
        elif pa.types.is_list(field.type):
            keys = _array(pa.string(), block.rows, nulls, buffers)
            arrays.append(pc.split_pattern(keys, " ").cast(field.type))
        else:
            arrays.append(_array(field.type, block.rows, nulls, buffers))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as_text(array: pa.Array) -> pa.Array:
    """Show bytes that are not UTF-8 with backslashes; without such bytes nothing is copied."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if value is None else value.decode(errors="backslashreplace")
            for value in array.to_pylist()
        ]
        return pa.array(texts, pa.string())


def _array(kind: pa.DataType, rows: int, nulls: int, buffers: Sequence[object]) -> pa.Array:
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, rows, wrapped, null_count=nulls)
    validity, offsets, key_offsets, keys, value_offsets, values = wrapped
    assert key_offsets is not None
    pairs = key_offsets.size // 4 - 1
    entries = pa.StructArray.from_buffers(
        pa.struct([kind.key_field, kind.item_field]),
        pairs,
        [None],
        null_count=0,
        children=[
            pa.Array.from_buffers(pa.string(), pairs, [None, key_offsets, keys], null_count=0),
            pa.Array.from_buffers(pa.string(), pairs, [None, value_offsets, values], null_count=0),
        ],
    )
    return pa.Array.from_buffers(
        kind, rows, [validity, offsets], null_count=nulls, children=[entries]
    )
