"""Option ``layout=kafka``: converts our columns to those of Spark's Kafka source, and back.

| Kafka's | ours |
|---|---|
| key | the sharding key, which orders messages as Kafka's key does; without one the keys |
| value | body |
| partition | queueId: unique in a topic only together with brokerName |
| offset | queueOffset |
| timestamp, timestampType | storeTimestamp, and 1 for the time of the append |
| headers | the properties, without RocketMQ's internal ones |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq import _core
from pyrmq._names import Property
from pyrmq._tables.schema import COLUMNS as OURS
from pyrmq._tables.schema import arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SINK", "from_messages", "sent_columns", "sources", "to_messages"]

SINK: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Every column that the sink takes in this layout, and its types."""

_SOURCES: Final = {
    "key": ("keys", "properties"),
    "value": ("body",),
    "topic": ("topic",),
    "partition": ("queueId",),
    "offset": ("queueOffset",),
    "timestamp": ("storeTimestamp",),
    "timestampType": (),
    "headers": ("properties",),
    "brokerName": ("brokerName",),
}
_APPEND_TIME: Final = 1
_RESERVED: Final = pa.array(sorted(_core.RESERVED_PROPERTIES), pa.string())


def sources(columns: Sequence[str]) -> pa.Schema:
    """Return our columns from which these Kafka columns are made; at least one."""
    wanted = {ours for name in columns for ours in _SOURCES[name]} or {"queueId"}
    return pa.schema([pa.field(name, arrow_type(OURS[name])) for name in OURS if name in wanted])


def from_messages(
    batch: pa.RecordBatch, columns: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch:
    """Make rows with Kafka's columns.

    Args:
        batch: our columns, from `sources`.
        columns: Kafka's columns by their own names, in the schema's order.
        schema: names and types that Spark expects.
    """
    arrays = [
        _column(batch, name).cast(field.type) for name, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == "key":
        ordered = pc.map_lookup(batch["properties"], pa.scalar(Property.SHARDINGKEY), "first")
        return pc.coalesce(ordered, batch["keys"]).cast(pa.binary())
    if name == "headers":
        return _headers(batch["properties"])
    if name == "timestampType":
        return pa.repeat(pa.scalar(_APPEND_TIME, pa.int32()), batch.num_rows)
    return batch[_SOURCES[name][0]]


def _headers(properties: pa.MapArray) -> pa.ListArray:
    kept = pc.invert(pc.is_in(properties.keys, _RESERVED))
    before = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    offsets = pa.array(before[properties.offsets.to_numpy()], pa.int32())
    pairs = pa.StructArray.from_arrays(
        [properties.keys.filter(kept), properties.items.filter(kept).cast(pa.binary())],
        fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
    )
    return pa.ListArray.from_arrays(offsets, pairs, mask=properties.is_null())


def sent_columns(names: Iterable[str]) -> list[str]:
    """Return our columns that `to_messages` makes from these Kafka columns."""
    made = {
        "value": ("body",),
        "topic": ("topic",),
        "partition": ("queueId",),
        "key": ("shardingKey", "keys"),
        "headers": ("properties",),
    }
    return [column for name in names for column in made[name]]


def to_messages(table: pa.RecordBatch, names: dict[str, str]) -> pa.RecordBatch:
    """Make messages from rows in Kafka's columns: the columns that `sent_columns` names.

    Args:
        table: the rows.
        names: each column's name in the table by Kafka's.

    Raises:
        pa.ArrowInvalid: a key or a header is not UTF-8, as properties of a message must be.
    """
    columns: dict[str, pa.Array] = {"body": table[names["value"]]}
    if "topic" in names:
        columns["topic"] = table[names["topic"]]
    if "partition" in names:
        columns["queueId"] = table[names["partition"]]
    if "key" in names:
        key = table[names["key"]].cast(pa.string())
        columns["shardingKey"] = key
        # A space separates two keys, so such a key could not be searched for.
        spaced = pc.fill_null(pc.match_substring(key, " "), fill_value=False)
        columns["keys"] = pc.if_else(spaced, pa.scalar(None, pa.string()), key)
    if "headers" in names:
        columns["properties"] = _properties(table[names["headers"]])
    return pa.RecordBatch.from_pydict(columns)


def _properties(headers: pa.ListArray) -> pa.MapArray:
    pairs = headers.flatten()
    offsets = pc.subtract(headers.offsets, headers.offsets[0])
    lengths_differ = len(pairs) != offsets[len(offsets) - 1].as_py()
    if headers.null_count or lengths_differ:
        rows = [
            None if row is None else [(h["key"], h["value"]) for h in row]
            for row in headers.to_pylist()
        ]
        kind = pa.map_(pa.string(), pa.binary())
        return pa.array(rows, kind).cast(pa.map_(pa.string(), pa.string()))
    return pa.MapArray.from_arrays(
        offsets, pairs.field("key"), pairs.field("value").cast(pa.string())
    )
