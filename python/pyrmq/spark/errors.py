"""The errors of the Spark source and sink, and of `pyrmq.arrow`."""

from __future__ import annotations

from pyrmq._tables.errors import (
    BrokerAway,
    DataLossError,
    FenceError,
    OffsetError,
    OptionError,
    SchemaError,
)

__all__ = ["BrokerAway", "DataLossError", "FenceError", "OffsetError", "OptionError", "SchemaError"]
