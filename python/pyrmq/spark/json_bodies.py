"""JSON bodies as typed columns; others go to a frame of their own, with reason and origin."""

from __future__ import annotations

import json as jsonlib
from typing import TYPE_CHECKING, NamedTuple

from pyrmq._tables.errors import SchemaError
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["REASON", "Parsed", "infer", "json", "unfolded", "with_reason"]

_ORIGIN = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "storeTimestamp", "body")
_PARSED, _CORRUPT, REASON = "__parsed", "__corrupt", "reason"
_SAMPLE_BYTES = 1 << 20


class Parsed(NamedTuple):
    """Messages whose bodies were read as JSON.

    Attributes:
        rows: the columns of the schema, then those columns of the messages that it does not name.
        bad: the messages that do not fit: ``reason``, then the origin of each, and its body.
    """

    rows: DataFrame
    bad: DataFrame


def json(frame: DataFrame, schema: str | StructType) -> Parsed:
    """Read the bodies of messages as JSON objects of a schema.

    A body does not fit if it is NULL, not UTF-8, not exactly one JSON object, if a value has
    another type, or if a column that is ``NOT NULL`` lacks its value. Works on batches and streams.
    A stream of the bad rows is a separate query.

    Args:
        frame: messages with column ``body``.
        schema: columns as DDL (``"id BIGINT NOT NULL, total DOUBLE"``) or as a type.

    Raises:
        SchemaError: the schema cannot be read, or the frame has no column ``body``.

    Example:
        >>> orders, bad = json(messages, "id BIGINT NOT NULL, total DOUBLE")  # doctest: +SKIP
    """
    from pyspark.sql import functions as F

    checked = with_reason(frame, schema)
    origin = [name for name in _ORIGIN if name in frame.columns]
    fits = checked.where(F.col(REASON).isNull()).drop(REASON, "body")
    bad = checked.where(F.col(REASON).isNotNull()).select(REASON, *origin)
    return Parsed(unfolded(fits, schema), bad)


def with_reason(frame: DataFrame, schema: str | StructType) -> DataFrame:
    """Add the parsed body, and column ``reason``: why it does not fit, NULL if it does."""
    from pyspark.sql import functions as F

    wanted = _schema(schema)
    if "body" not in frame.columns:
        raise SchemaError(f"column body is missing: there are {', '.join(frame.columns)}")
    text = F.col("body").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(text, _with_corrupt(wanted), options)
    with_parsed = frame.withColumn(_PARSED, parsed)
    return with_parsed.withColumn(REASON, _reason(text, wanted))


def _reason(text: Column, wanted: StructType) -> Column:
    from pyspark.sql import functions as F

    body, fields = F.col(_PARSED), ", ".join(field.simpleString() for field in wanted.fields)
    reason = (
        F.when(F.col("body").isNull(), "the body is NULL")
        .when(~F.is_valid_utf8(text), "the body is not UTF-8")
        .when(body.isNull() | body[_CORRUPT].isNotNull(), f"not a JSON object of {fields}")
        .when(~_is_one_object(text), "more than one JSON object, or text after it")
    )
    for field in wanted.fields:
        if not field.nullable:
            reason = reason.when(body[field.name].isNull(), f"{field.name} is missing or null")
    return reason


def _is_one_object(text: Column) -> Column:
    """Return whether a text is one object: Spark's parser stops after the first one."""
    from pyspark.sql import functions as F

    within = F.from_json(F.concat(F.lit("["), text, F.lit(",{}]")), "array<struct<_: string>>")
    return F.coalesce((F.size(within) == 2) & within[0].isNotNull(), F.lit(False))


def unfolded(checked: DataFrame, schema: str | StructType) -> DataFrame:
    """Replace the parsed body by its columns."""
    names = [field.name for field in _schema(schema).fields]
    lower = {name.lower() for name in names}
    others = [c for c in checked.columns if c != _PARSED and c.lower() not in lower]
    return checked.select(*(checked[_PARSED][name].alias(name) for name in names), *others)


def _schema(given: str | StructType) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if isinstance(given, StructType):
        return given
    try:
        made = StructType.fromDDL(given)
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise SchemaError(f"the schema {given!r} cannot be read: {first}") from error
    if not isinstance(made, StructType) or not made.fields:
        raise SchemaError(f"the schema {given!r} names no column")
    return made


def _with_corrupt(wanted: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    # Spark would report an object without a NOT NULL value as corrupt, which hides the reason.
    nullable = [StructField(field.name, field.dataType) for field in wanted.fields]
    return StructType([*nullable, StructField(_CORRUPT, StringType())])


def infer(frame: DataFrame, rows: int = 1000) -> str:
    """Find the schema of JSON bodies from the first messages, as DDL for `json`.

    Args:
        frame: messages of a batch read with column ``body``.
        rows: how many messages to read; at most a megabyte of them.

    Raises:
        ConfigError: the frame is a stream, or no body is a JSON object.

    Example:
        >>> infer(spark.read.format("rocketmq").load("orders"))  # doctest: +SKIP
        'id BIGINT, total DOUBLE'
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DataType

    if frame.isStreaming:
        raise ConfigError("a schema is inferred from a batch read: use spark.read, not readStream")
    found, size = [], 0
    for row in frame.select(F.col("body").cast("binary").alias("body")).limit(rows).collect():
        try:
            is_object = row.body is not None and isinstance(jsonlib.loads(bytes(row.body)), dict)
        except ValueError:
            continue
        size += len(row.body or b"")
        if size > _SAMPLE_BYTES:
            break
        if is_object:
            found.append(bytes(row.body).decode())
    if not found:
        raise ConfigError(f"no body of the first {rows} messages is a JSON object")
    sample = F.lit(f"[{','.join(found)}]")
    session = frame.sparkSession
    (answer,) = session.range(1).select(F.schema_of_json(sample).alias("ddl")).collect()
    array = DataType.fromDDL(answer.ddl)
    assert isinstance(array, ArrayType)
    fields = array.elementType.fields  # type: ignore[attr-defined]
    return ", ".join(f"`{f.name}` {f.dataType.simpleString().upper()}" for f in fields)
