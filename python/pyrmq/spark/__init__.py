"""Topics as Spark tables and streams: ``spark.read.format("rocketmq")``.

Spark finds the format of the installed wheel by itself; :func:`register` is the explicit way.
Importing this package needs neither pyspark nor pyarrow; using it needs both (extra ``spark`` or
``spark-local``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.spark.checks import examine_executors
    from pyrmq.spark.json_bodies import infer, json
    from pyrmq.spark.local import session
    from pyrmq.spark.progress.figures import Lag, lag
    from pyrmq.spark.progress.listener import Listener, listen
    from pyrmq.spark.source import RocketMQDataSource, register

_HOMES = {
    "Lag": "progress.figures",
    "Listener": "progress.listener",
    "RocketMQDataSource": "source",
    "examine_executors": "checks",
    "infer": "json_bodies",
    "json": "json_bodies",
    "lag": "progress.figures",
    "listen": "progress.listener",
    "register": "source",
    "session": "local",
}
__all__ = [
    "Lag",
    "Listener",
    "RocketMQDataSource",
    "examine_executors",
    "infer",
    "json",
    "lag",
    "listen",
    "register",
    "session",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pyrmq.spark.{_HOMES[name]}"), name)
