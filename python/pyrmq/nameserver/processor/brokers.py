"""Write permission of brokers: 205 and 327.

In Apache `DefaultRequestProcessor` over `RouteInfoManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import Response

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def wipe(request: _core.Request) -> Response:
        count = server.core.wipe_write_perm(request.get("brokerName") or "")
        return Response(fields={"wipeTopicCount": str(count)})

    def add(request: _core.Request) -> Response:
        count = server.core.add_write_perm(request.get("brokerName") or "")
        return Response(fields={"addTopicCount": str(count)})

    return {
        205: wipe,  # WIPE_WRITE_PERM_OF_BROKER
        327: add,  # ADD_WRITE_PERM_OF_BROKER
    }
