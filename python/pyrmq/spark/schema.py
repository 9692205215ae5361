"""The columns of a message, their Spark types, and the Arrow schema that Spark expects for them.

Order and types are fixed. A user schema or option ``columns`` picks any of them in any order:
Spark has no column pruning for Python sources, so this is how a read stays cheap, and what is not
picked is never built. The Arrow schema is made here because Spark's own conversion is private and
changed between releases; it must equal Spark's exactly or the read fails.

This file imports neither pyspark nor pyarrow until one of them is needed.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pyrmq.spark.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import ArrayType, StructType

__all__ = [
    "ALSO",
    "COLUMNS",
    "DEFAULT",
    "KAFKA",
    "LAYOUTS",
    "Layout",
    "arrow_schema",
    "arrow_type",
    "ddl",
    "default",
    "known",
    "projection",
]

Layout: TypeAlias = Literal["rocketmq", "kafka"]
LAYOUTS: Final[tuple[str, ...]] = get_args(Layout)

COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "body": "binary",
    "keys": "string",
    "tags": "string",
    "properties": "map<string,string>",
    "msgId": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "flag": "int",
    "sysFlag": "int",
    "reconsumeTimes": "int",
    "commitLogOffset": "bigint",
}
"""Every column and its Spark type, in order."""

ALSO: Final[dict[str, str]] = {"body": "string", "keys": "array<string>"}
"""Other types that a user schema may give a column: text, with bytes that are no UTF-8 shown as
``\\xff``, and the keys one by one."""

DEFAULT: Final[tuple[str, ...]] = tuple(COLUMNS)[:11]
"""The columns of a read that asks for none: all but hosts, flags, retries and log position."""

KAFKA: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "brokerName": "string",
}
"""Every column of option ``layout=kafka`` and its Spark type; `kafka.py` says what they hold."""

_TYPES: Final[dict[Layout, dict[str, str]]] = {"rocketmq": COLUMNS, "kafka": KAFKA}
_DEFAULTS: Final[dict[Layout, tuple[str, ...]]] = {"rocketmq": DEFAULT, "kafka": tuple(KAFKA)[:7]}


def default(layout: Layout) -> tuple[str, ...]:
    """Return the columns of a read that asks for none.

    Example:
        >>> default("kafka")[:2]
        ('key', 'value')
    """
    return _DEFAULTS[layout]


def known(name: str, layout: Layout = "rocketmq") -> str:
    """Return a column's own spelling.

    Raises:
        SchemaError: there is no such column; the nearest one is named.

    Example:
        >>> known("QUEUEID")
        'queueId'
    """
    by_lower = {column.lower(): column for column in _TYPES[layout]}
    found = by_lower.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
        hint = (
            f"did you mean {by_lower[near[0]]}?"
            if near
            else f"known are: {', '.join(_TYPES[layout])}"
        )
        for other, types in _TYPES.items():
            if other != layout and name.lower() in {column.lower() for column in types}:
                hint = f"it is a column of layout={other}, and option layout is {layout}"
        raise SchemaError(f"column {name}: unknown, {hint}")
    return found


def ddl(columns: Sequence[str] = (), layout: Layout = "rocketmq") -> str:
    """Write the schema of these columns, or of the default ones, as Spark reads it.

    Example:
        >>> ddl(["body", "queueOffset"])
        'body binary, queueOffset bigint'
    """
    types = _TYPES[layout]
    return ", ".join(f"{name} {types[name]}" for name in (columns or default(layout)))


def projection(schema: StructType, layout: Layout = "rocketmq") -> tuple[str, ...]:
    """Return which columns a schema asks for, in its order.

    Args:
        schema: ours or the user's; names in any case.
        layout: whose columns they are.

    Raises:
        SchemaError: an unknown column, one that stands twice, or one with another type than ours.
    """
    if not schema.fields:
        raise SchemaError("the schema has no column: name at least one")
    names: list[str] = []
    for field in schema.fields:
        name = known(field.name, layout)
        if name in names:
            raise SchemaError(f"column {field.name}: stands twice in the schema")
        found = field.dataType.simpleString()
        kinds = [_TYPES[layout][name], *([ALSO[name]] if name in ALSO else [])]
        if found not in kinds:
            raise SchemaError(
                f"column {field.name}: has type {' or '.join(kinds)}, the schema says {found};"
                " read it as it is and cast it in a select"
            )
        names.append(name)
    return tuple(names)


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column's Spark type.

    Example:
        >>> str(arrow_type("bigint"))
        'int64'
    """
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return types[kind]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Build the Arrow schema that Spark expects for a schema that `projection` took.

    Names and nullability are the schema's own; timestamps are microseconds in UTC.
    """
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, MapType

    fields = []
    for field in schema.fields:
        kind = field.dataType
        if isinstance(kind, MapType):
            value = pa.field("value", pa.string(), nullable=kind.valueContainsNull)
            arrow = pa.map_(pa.string(), value)
        elif isinstance(kind, ArrayType) and kind.simpleString() == KAFKA["headers"]:
            arrow = _headers(kind)
        elif isinstance(kind, ArrayType):
            arrow = pa.list_(pa.field("element", pa.string(), nullable=kind.containsNull))
        else:
            arrow = arrow_type(kind.simpleString())
        fields.append(pa.field(field.name, arrow, nullable=field.nullable))
    return pa.schema(fields)


def _headers(kind: ArrayType) -> pa.DataType:
    import pyarrow as pa

    pair = kind.elementType
    fields = [
        pa.field("key", pa.string(), nullable=pair["key"].nullable),  # type: ignore[index]
        pa.field("value", pa.binary(), nullable=pair["value"].nullable),  # type: ignore[index]
    ]
    return pa.list_(pa.field("element", pa.struct(fields), nullable=kind.containsNull))
