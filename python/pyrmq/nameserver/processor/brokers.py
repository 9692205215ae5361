"""Brokers: write permission 205 and 327, members of a broker name 901.

In Apache `DefaultRequestProcessor` over `RouteInfoManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import Response
from pyrmq.server.requests import as_json

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

    def members(request: _core.Request) -> Response:
        cluster, name = request.get("clusterName"), request.get("brokerName")
        addresses = server.core.broker_members(name or "")
        # Broker ids are bare integer keys here, for every peer (fastjson's plain form).
        table = ",".join(
            f"{broker_id}:{_text(address)}" for broker_id, address in sorted(addresses.items())
        )
        # A name that is not in the request is not in the answer.
        asked = (("brokerName", name), ("cluster", cluster))
        names = "".join(f',"{key}":{_text(text)}' for key, text in asked if text is not None)
        text = f'{{"brokerMemberGroup":{{"brokerAddrs":{{{table}}}{names}}}}}'
        return Response(body=text.encode())

    return {
        205: wipe,  # WIPE_WRITE_PERM_OF_BROKER
        327: add,  # ADD_WRITE_PERM_OF_BROKER
        901: members,  # GET_BROKER_MEMBER_GROUP
    }


def _text(value: str) -> str:
    return as_json(value).decode()
