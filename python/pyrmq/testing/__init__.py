"""A real RocketMQ cluster inside the test's process: free ports, temporary store.

`cluster()` is a context manager. The pytest plugin, which this package installs, has the
fixtures `rocketmq` (a fresh cluster for each test) and `rocketmq_session` (one for all).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyrmq.testing.members import ClusterBroker as ClusterBroker
    from pyrmq.testing.members import ClusterNameServer as ClusterNameServer
    from pyrmq.testing.running import Cluster as Cluster
    from pyrmq.testing.running import cluster as cluster

__all__ = ["Cluster", "ClusterBroker", "ClusterNameServer", "cluster"]

_HOMES = {"ClusterBroker": "members", "ClusterNameServer": "members"}


def __getattr__(name: str) -> object:
    """Load the cluster on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = _HOMES.get(name, "running")
    value = getattr(import_module(f"pyrmq.testing.{home}"), name)
    globals()[name] = value
    return value
