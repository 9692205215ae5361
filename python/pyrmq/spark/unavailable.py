"""Stands in for the source where it cannot be imported, and says why on first use.

Spark drops a source whose module raises, and then says DATA_SOURCE_NOT_FOUND, which names nothing.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from pyspark.sql.datasource import DataSource

__all__ = ["unavailable"]


def unavailable(cause: BaseException) -> type[DataSource]:
    """Make a source that raises the cause as soon as it is used."""
    text = (
        f"format rocketmq cannot be used by {sys.executable} (Python {sys.version.split()[0]}):"
        f" {type(cause).__name__}: {cause}. Install pyrmq-rocketmq[spark] there; if this is not"
        " the driver's Python, set PYSPARK_PYTHON to that of the driver before the session starts"
    )

    class UnavailableDataSource(DataSource):
        """Raises on use."""

        @classmethod
        def name(cls) -> str:
            """Return the format's name."""
            return "rocketmq"

        def schema(self) -> NoReturn:
            """Raise the cause."""
            raise ImportError(text)

        def __getattribute__(self, name: str) -> object:
            """Raise the cause for every read and write."""
            if name in {"reader", "streamReader", "writer", "streamWriter"}:
                raise ImportError(text)
            return super().__getattribute__(name)

    return UnavailableDataSource
