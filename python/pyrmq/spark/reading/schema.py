"""The columns that a Spark schema names, and the Arrow schema that Spark expects for it.

The Arrow schema is made here because Spark's own conversion is private and changed between
releases; it must equal Spark's exactly or the read fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq._tables.errors import SchemaError
from pyrmq._tables.schema import ALSO, KAFKA, TYPES, arrow_type, known

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, StructType

    from pyrmq._tables.schema import Layout

__all__ = ["arrow_schema", "projection"]


def projection(schema: StructType, layout: Layout = "rocketmq") -> tuple[str, ...]:
    """Return the columns that a schema names, in its order.

    Args:
        schema: ours or the user's; names in any case.
        layout: the layout that they belong to.

    Raises:
        SchemaError: an unknown column, a repeated one, or one with another type than ours.
    """
    if not schema.fields:
        raise SchemaError("the schema has no column: name at least one")
    names: list[str] = []
    for field in schema.fields:
        name = known(field.name, layout)
        if name in names:
            raise SchemaError(f"column {field.name}: is twice in the schema")
        found = field.dataType.simpleString()
        kinds = [TYPES[layout][name], *([ALSO[name]] if name in ALSO else [])]
        if found not in kinds:
            raise SchemaError(
                f"column {field.name}: has type {' or '.join(kinds)}, the schema says {found};"
                " read it as it is and cast it in a select"
            )
        names.append(name)
    return tuple(names)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Build the Arrow schema that Spark expects for a schema that `projection` accepted.

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
