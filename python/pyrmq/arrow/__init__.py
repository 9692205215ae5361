"""Topics and log files as Arrow tables, and tables as messages, without Spark.

A table is pyarrow's; pandas, polars and duckdb accept it and its reader. No Python object is made
for a row. Needs pyarrow (extra ``arrow``).

Example:
    >>> import pyarrow as pa
    >>> from pyrmq import arrow
    >>> from pyrmq.testing import cluster
    >>> with cluster() as running:
    ...     table = pa.table({"body": ["two coffees", "tea"], "tags": ["hot", "hot"]})
    ...     arrow.send(table, "orders", name_server=running.name_server)
    2
    >>> arrow.read("orders", since="1h", columns=["tags", "body"]).to_pandas()  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.arrow.log_files import read_log, scan_log
    from pyrmq.arrow.reading import follow, read, scan
    from pyrmq.arrow.sending import send

__all__ = ["follow", "read", "read_log", "scan", "scan_log", "send"]


def __getattr__(name: str) -> object:
    """Load pyarrow on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"send": "sending", "read_log": "log_files", "scan_log": "log_files"}
    value = getattr(import_module(f"pyrmq.arrow.{homes.get(name, 'reading')}"), name)
    globals()[name] = value
    return value
