"""The broker's state for `pyrmq broker status` and `pyrmq doctor`: a request code of our own."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, Any

from pyrmq.config import BROKER_STATUS
from pyrmq.server.processors import Response
from pyrmq.server.requests import as_json

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.broker.server import Broker
    from pyrmq.server.processors import Handler


def rows(server: Broker) -> dict[int, Handler]:
    """The handlers of this family."""

    def status(request: _core.Request) -> Response:
        del request
        held = dict(server.core.figures()["held"])
        return Response(body=as_json({**report(server), "held": held}))

    return {BROKER_STATUS: status}


def report(server: Broker) -> dict[str, Any]:
    """The state of a running broker: its health, its clock, and what its process may use.

    Raises:
        ClosedError: it does not run.

    Example:
        >>> report(server)["broker_name"]  # doctest: +SKIP
        'broker-a'
    """
    from pyrmq import __version__
    from pyrmq.server.process import file_system, memory

    options = server.options
    return {
        **server.health(),
        "version": __version__,
        "cluster": options.broker_cluster_name,
        "broker_name": options.broker_name,
        "broker_id": options.broker_id,
        "time_ms": int(time() * 1000),
        "uptime_ms": int((monotonic() - server.began) * 1000),
        "memory": memory(),
        "file_system": file_system(server.store),
    }
