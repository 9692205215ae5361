"""The state of the name server for `pyrmq nameserver status`, with a request code of our own."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

from pyrmq.config import NAME_SERVER_STATUS
from pyrmq.server.processors import Response
from pyrmq.server.requests import as_json

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def status(request: _core.Request) -> Response:
        del request
        return Response(body=as_json(report(server)))

    return {NAME_SERVER_STATUS: status}


def report(server: NameServer) -> dict[str, Any]:
    """The state of a running name server for its operator; numbers count from its start.

    `lost_brokers` are those that ended without unregistering and whose name has no process left.
    `latencies` lists, for each kind of request, how many took up to 1, 2, 4 ... 2**23 microseconds
    and how many longer, and the sum of their microseconds.

    Raises:
        ClosedError: it does not run.

    Example:
        >>> report(server)["ready"]  # doctest: +SKIP
        True
    """
    from pyrmq import __version__

    core = server.core
    health = server.health()
    live = server.brokers()
    return {
        "address": core.address,
        "version": __version__,
        "status": health["status"],
        "ready": server.ready(),
        "uptime_ms": core.uptime_ms(),
        "time_ms": int(time() * 1000),
        "topics": health["topics"],
        "brokers": [broker._asdict() for broker in live],
        "lost_brokers": [
            {"name": name, "cluster": cluster, "address": address, "ago_ms": ago_ms}
            for name, cluster, address, ago_ms in core.lost_brokers()
            if (name, cluster) not in {(broker.name, broker.cluster) for broker in live}
        ],
        "counters": dict(core.stats()),
        "latencies": {
            kind: {"buckets": buckets, "sum_us": total} for kind, buckets, total in core.latencies()
        },
    }
