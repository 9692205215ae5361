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

    def update(request: _core.Request) -> Response:
        # Imported on demand, to keep a server's start short.
        from pyrmq._client import log
        from pyrmq.nameserver import idle
        from pyrmq.server.options.runtime import changes_of, pairs_of, readable

        pairs, wrong = readable(server.options, pairs_of(request))
        source = f"request code {request.code}"
        # Under the lock: no other thread may change options between comparison and change.
        with server.changing:
            changed = changes_of(server.options, pairs, source)
            server.reconfigure(changed, idle=idle.given(pairs))
        if not wrong:
            return Response()
        left = f"ignored: {'; '.join(wrong)}"
        log.get("pyrmq.nameserver").warning("%s: %s", source, left)
        return Response(remark=left)

    def show(request: _core.Request) -> Response:
        from pyrmq.server.options.properties import write

        del request
        return Response(body=write(server.properties()).encode())

    return {
        318: update,  # UPDATE_NAMESRV_CONFIG
        319: show,  # GET_NAMESRV_CONFIG
    }
