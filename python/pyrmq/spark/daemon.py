"""A daemon for Python workers that imports what they need before it forks them.

Spark starts one daemon on each executor, which forks its Python workers. Without this module every
new worker imports pyarrow, pandas and pyrmq itself, which takes most of a second. Set
``spark.python.daemon.module=pyrmq.spark.daemon`` before the session starts;
`pyrmq.spark.session` does.
"""

from __future__ import annotations

import contextlib
import gc
from importlib import import_module

__all__ = ["main", "preload"]

_MODULES = (
    "pyspark.worker",
    "pyarrow",
    "pyarrow.compute",
    "pandas",
    "pyrmq._client.arrow",
    "pyrmq.spark.reading.stream",
    "pyrmq.spark.writing.sink",
)


def preload() -> None:
    """Import what workers use. A worker that needs a missing module reports it."""
    for module in _MODULES:
        with contextlib.suppress(ImportError):
            import_module(module)
    # Workers share these pages as long as no garbage collection writes to them.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Preload, then serve as Spark's own daemon."""
    preload()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
