"""Topics as Spark tables and streams: ``spark.read.format("rocketmq")``.

With the wheel installed Spark finds the format by itself; :func:`register` is the explicit way.
Importing this package needs neither pyspark nor pyarrow; using it needs both (extra ``spark`` or
``spark-local``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.spark.local import session
    from pyrmq.spark.source import RocketMQDataSource, register

__all__ = ["RocketMQDataSource", "register", "session"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "local" if name == "session" else "source"
    return getattr(import_module(f"pyrmq.spark.{home}"), name)
