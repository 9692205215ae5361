"""Tables of messages to send: their columns, and their memory for the native sender.

No Python object is made for a row. A column is passed as its Arrow buffers: validity, offsets,
data.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq._names import Property
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["COLUMNS", "DELAYS", "Encoded", "check_columns", "encode", "faults"]

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("string", "binary"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "queueId": ("int",),
    "delay": ("int", "bigint", "float", "double"),
    "deliverAt": ("timestamp",),
    "delayLevel": ("int",),
}
"""Every column of a table of messages, and the types that it may have. Delays are seconds."""

DELAYS: Final = ("delay", "deliverAt", "delayLevel")
"""The columns that set the delivery time; a table has at most one of them."""

_KAFKA: Final = {
    "value": "body",
    "key": "keys (to find messages) or shardingKey (to order them)",
    "headers": "properties",
    "partition": "queueId",
}
_TEXT_PROPERTIES: Final = {
    "tags": Property.TAGS,
    "keys": Property.KEYS,
    "shardingKey": Property.SHARDINGKEY,
}
_MS = 1000
_SMALL_BYTES = 1 << 16


@dataclass(frozen=True)
class Encoded:
    """A table's columns as buffers, in the form that `pyrmq._core.send_table` takes."""

    rows: int
    body: tuple[object, ...]
    properties: list[tuple[str, tuple[object, ...]]]
    pairs: tuple[object, ...] | None
    queues: tuple[object, ...] | None


def check_columns(
    types: Mapping[str, str], columns: Mapping[str, tuple[str, ...]] = COLUMNS
) -> dict[str, str]:
    """Check the columns of a table of messages; return each column's name in the table by ours.

    Args:
        types: type of each column, spelled as Spark does.
        columns: every column that there may be, and its types.

    Raises:
        ConfigError: a column is missing, unknown, repeated, or of another type.

    Example:
        >>> check_columns({"BODY": "binary", "tags": "string"})
        {'body': 'BODY', 'tags': 'tags'}
    """
    found: dict[str, str] = {}
    by_lower = {name.lower(): name for name in columns}
    for written, kind in types.items():
        name = by_lower.get(written.lower())
        if name is None:
            raise ConfigError(f"column {written}: unknown, {_hint(written.lower(), by_lower)}")
        if name in found:
            raise ConfigError(f"column {written}: is there twice")
        if kind not in columns[name]:
            raise ConfigError(
                f"column {written}: has type {kind}, expected {' or '.join(columns[name])}: cast"
                " it in a select"
            )
        found[name] = written
    content = "body" if "body" in columns else "value"
    if content not in found:
        raise ConfigError(
            f"column {content} is missing: there are {', '.join(types) or 'none'}; name the"
            f" message's content {content} (string or binary)"
        )
    delays = [name for name in DELAYS if name in found]
    if len(delays) > 1:
        raise ConfigError(f"only one of the columns {' and '.join(delays)} can be given")
    return found


def _hint(lower: str, by_lower: Mapping[str, str]) -> str:
    if lower in _KAFKA and "body" in by_lower:
        return f"in RocketMQ it is {_KAFKA[lower]}"
    near = difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.5)
    return (
        f"did you mean {by_lower[near[0]]}?"
        if near
        else f"known are: {', '.join(by_lower.values())}"
    )


def encode(
    table: pa.RecordBatch, names: Mapping[str, str], more: Mapping[str, pa.Array] | None = None
) -> Encoded:
    """Split a table into its columns; only the columns' own memory is copied.

    Args:
        table: rows of one topic.
        names: from `check_columns`.
        more: further properties of the messages, by name.
    """
    table = _compact(table)
    columns = {name: table.column(written) for name, written in names.items()}
    properties = [
        (name, _text(_joined(columns[column])))
        for column, name in _TEXT_PROPERTIES.items()
        if column in columns
    ]
    properties += [(name, _text(array)) for name, array in _delays(columns)]
    properties += [(name, _text(array)) for name, array in (more or {}).items()]
    return Encoded(
        rows=table.num_rows,
        body=_text(columns["body"]),
        properties=properties,
        pairs=_pairs(columns["properties"]) if "properties" in columns else None,
        queues=_numbers(columns["queueId"]) if "queueId" in columns else None,
    )


def _compact(table: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a slice that is small compared with its buffers: the sender takes whole buffers."""
    if table.get_total_buffer_size() <= 2 * table.nbytes + _SMALL_BYTES:
        return table
    return table.take(pa.array(range(table.num_rows), pa.int64()))


def _delays(columns: Mapping[str, pa.Array]) -> Iterable[tuple[str, pa.Array]]:
    if "delay" in columns:
        milliseconds = pc.round(pc.multiply(columns["delay"].cast(pa.float64()), float(_MS)))
        yield Property.TIMER_DELAY_MS, milliseconds.cast(pa.int64()).cast(pa.string())
    if "deliverAt" in columns:
        moment = columns["deliverAt"].cast(pa.timestamp("ms", tz="UTC"), safe=False)
        yield Property.TIMER_DELIVER_MS, moment.cast(pa.int64()).cast(pa.string())
    if "delayLevel" in columns:
        level = columns["delayLevel"]
        none = pa.scalar(None, level.type)
        yield Property.DELAY, pc.if_else(pc.equal(level, 0), none, level).cast(pa.string())


_FAULTS: Final = {
    "spaced": "a key has a space, which RocketMQ puts between keys: give it as two keys, or replace"
    " it",
    "tags": "the tag has ||, which separates the tags of a subscription: nobody could subscribe to"
    " it",
    "queueId": "the queueId is negative",
    "delay": "the delay is not a time from 0 s to 10,000 years",
    "deliverAt": "deliverAt is before 1970",
    "delayLevel": "the delayLevel is not between 0 and 18",
}
_MAX_SECONDS = 3e11
_MAX_LEVELS = 18


def faults(table: pa.RecordBatch, names: Mapping[str, str]) -> dict[int, str]:
    """Return the rows that cannot be messages, each with the reason."""
    columns = {name: table.column(written) for name, written in names.items()}
    found = dict.fromkeys(_rows_with_spaced_keys(table, names), _FAULTS["spaced"])

    def add(name: str, wrong: pa.Array) -> None:
        rows = pc.indices_nonzero(pc.fill_null(wrong, fill_value=False)).to_pylist()
        found.update(dict.fromkeys(rows, _FAULTS[name]))

    if "tags" in columns:
        add("tags", pc.match_substring(columns["tags"], "||"))
    if "queueId" in columns:
        add("queueId", pc.less(columns["queueId"], 0))
    if "delay" in columns:
        seconds = columns["delay"].cast(pa.float64())
        fits = pc.and_(pc.greater_equal(seconds, 0), pc.less(seconds, _MAX_SECONDS))
        add("delay", pc.invert(fits))
    if "deliverAt" in columns:
        moment = columns["deliverAt"].cast(pa.timestamp("ms", tz="UTC"), safe=False)
        add("deliverAt", pc.less(moment.cast(pa.int64()), 0))
    if "delayLevel" in columns:
        level = columns["delayLevel"]
        add("delayLevel", pc.or_(pc.less(level, 0), pc.greater(level, _MAX_LEVELS)))
    return dict(sorted(found.items()))


def _rows_with_spaced_keys(table: pa.RecordBatch, names: Mapping[str, str]) -> list[int]:
    """Return the rows whose list of keys has a key with a space, which would be read as two."""
    if "keys" not in names or not _is_list(table.column(names["keys"]).type):
        return []
    keys = table.column(names["keys"])
    spaced = pc.fill_null(pc.match_substring(keys.flatten(), " "), fill_value=False)
    rows: list[int] = pc.unique(pc.list_parent_indices(keys).filter(spaced)).to_pylist()
    return rows


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _joined(array: pa.Array) -> pa.Array:
    """Join several keys to one text, with spaces between; NULLs are left out."""
    if not _is_list(array.type):
        return array
    lists = array.cast(pa.list_(pa.string()))
    if lists.flatten().null_count:
        texts = [
            None if keys is None else [key for key in keys if key is not None]
            for keys in lists.to_pylist()
        ]
        lists = pa.array(texts, lists.type)
    return pc.binary_join(lists, " ")


def _text(array: pa.Array) -> tuple[object, ...]:
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    elif pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    return (
        _bytes_or_none(validity),
        b"\0" * 4 if offsets is None else offsets.to_pybytes(),
        b"" if data is None else data.to_pybytes(),
        array.offset,
    )


def _pairs(array: pa.MapArray) -> tuple[object, ...]:
    buffers = array.buffers()
    return (
        _bytes_or_none(buffers[0]),
        b"\0" * 4 if buffers[1] is None else buffers[1].to_pybytes(),
        array.offset,
        _text(array.keys),
        _text(array.items),
    )


def _numbers(array: pa.Array) -> tuple[object, ...]:
    validity, values = array.cast(pa.int32()).buffers()
    return (
        _bytes_or_none(validity),
        b"" if values is None else values.to_pybytes(),
        array.offset,
    )


def _bytes_or_none(buffer: pa.Buffer | None) -> bytes | None:
    return None if buffer is None else buffer.to_pybytes()
