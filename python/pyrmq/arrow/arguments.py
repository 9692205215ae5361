"""Common arguments of the reads of topics and of log files."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from pyrmq._tables.options.option_values import ago
from pyrmq._tables.schema import COLUMNS, DEFAULT, arrow_type, known
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["moment", "schema_of"]


def moment(option: str, when: str | datetime | int | None) -> dict[str, str]:
    """Return a time as the option of this name; nothing without one.

    Raises:
        ConfigError: a datetime without a zone.
    """
    if when is None:
        return {}
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ConfigError(f"{when!r} has no time zone: give one, such as timezone.utc")
        return {option: str(round(when.timestamp() * 1000))}
    return {option: str(ago(when) if isinstance(when, str) else when)}


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of these columns, or of the default ones.

    Raises:
        SchemaError: an unknown column.
    """
    names = DEFAULT if columns is None else tuple(dict.fromkeys(map(known, columns)))
    return pa.schema([pa.field(name, arrow_type(COLUMNS[name])) for name in names])
