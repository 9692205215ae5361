"""The options of a running name server: 318 and 319."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import Response

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def update(request: _core.Request) -> None:
        # Imported by who is asked: a server's start counts in milliseconds.
        from pyrmq.server.runtime_config import changes

        server.reconfigure(changes(server.options, request))

    def show(request: _core.Request) -> Response:
        from pyrmq.server.properties import write

        del request
        return Response(body=write(server.options.to_properties()).encode())

    return {
        318: update,  # UPDATE_NAMESRV_CONFIG
        319: show,  # GET_NAMESRV_CONFIG
    }
