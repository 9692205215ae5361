"""A real RocketMQ cluster inside the test's process: free ports, temporary store.

`cluster()` is a context manager; the pytest plugin (loaded by installing this package) gives the
fixtures `rocketmq` (a fresh cluster for each test) and `rocketmq_session` (one for all).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.testing.cluster import Cluster as Cluster
    from pyrmq.testing.cluster import cluster as cluster

__all__ = ["Cluster", "cluster"]


def __getattr__(name: str) -> object:
    """Load the cluster on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    # Not `from ... import`: the module has the name of its function and would stay in its place.
    value = getattr(import_module("pyrmq.testing.cluster"), name)
    globals()[name] = value
    return value
