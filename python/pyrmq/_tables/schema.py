"""The columns of a message and their types, in Spark's words and in Arrow's.

Order and types are fixed. A user schema or option ``columns`` picks any of them in any order: Spark
has no column pruning for Python sources, so this keeps reads cheap: other columns are never built.

This file imports pyarrow only when it is needed.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pyrmq._tables.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = [
    "ALSO",
    "COLUMNS",
    "DEFAULT",
    "KAFKA",
    "LAYOUTS",
    "TYPES",
    "Layout",
    "arrow_type",
    "ddl",
    "default",
    "known",
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
"""Other types that a user schema may give a column: text, with bytes that are not UTF-8 shown as
``\\xff``, and the keys one by one."""

DEFAULT: Final[tuple[str, ...]] = tuple(COLUMNS)[:11]
"""The columns of a read that names none: all but hosts, flags, retries and log position."""

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
"""Every column of option ``layout=kafka`` and its Spark type; `kafka.py` describes them."""

TYPES: Final[dict[Layout, dict[str, str]]] = {"rocketmq": COLUMNS, "kafka": KAFKA}
"""Each layout's columns."""

_DEFAULTS: Final[dict[Layout, tuple[str, ...]]] = {"rocketmq": DEFAULT, "kafka": tuple(KAFKA)[:7]}


def default(layout: Layout) -> tuple[str, ...]:
    """Return the columns of a read that names none.

    Example:
        >>> default("kafka")[:2]
        ('key', 'value')
    """
    return _DEFAULTS[layout]


def known(name: str, layout: Layout = "rocketmq") -> str:
    """Return a column's own spelling.

    Raises:
        SchemaError: there is no such column; the closest one is named.

    Example:
        >>> known("QUEUEID")
        'queueId'
    """
    by_lower = {column.lower(): column for column in TYPES[layout]}
    found = by_lower.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
        hint = (
            f"did you mean {by_lower[near[0]]}?"
            if near
            else f"known are: {', '.join(TYPES[layout])}"
        )
        for other, types in TYPES.items():
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
    types = TYPES[layout]
    return ", ".join(f"{name} {types[name]}" for name in (columns or default(layout)))


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
