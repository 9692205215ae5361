"""A block of native column buffers as Arrow arrays: pyarrow wraps the memory, nothing is copied.

A block's columns are lists of buffers in Arrow's own layout (crates/client/src/columns/ draws
it); the first one is the validity bitmap or None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq._core import Block

__all__ = ["batch"]


def batch(block: Block, schema: pa.Schema) -> pa.RecordBatch:
    """Wrap a block whose columns are those of the schema, in order."""
    arrays = [
        _array(field.type, block.rows, nulls, buffers)
        for field, (nulls, buffers) in zip(schema, block.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
