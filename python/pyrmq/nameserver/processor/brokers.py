"""Brokers: write permission 205 and 327, members of a broker name 901.

In Apache `DefaultRequestProcessor` over `RouteInfoManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import Response
from pyrmq.server.requests import as_json, required

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def wipe(request: _core.Request) -> Response:
        count = server.core.wipe_write_perm(required(request, "brokerName"))
        return Response(fields={"wipeTopicCount": str(count)})

    def add(request: _core.Request) -> Response:
        count = server.core.add_write_perm(required(request, "brokerName"))
        return Response(fields={"addTopicCount": str(count)})

    def members(request: _core.Request) -> Response:
        cluster, name = required(request, "clusterName"), required(request, "brokerName")
        addresses = server.core.broker_members(name)
        # Broker ids are bare integer keys here, for every peer (fastjson's plain form).
        table = ",".join(
            f"{broker_id}:{_text(address)}" for broker_id, address in sorted(addresses.items())
        )
        text = (
            f'{{"brokerMemberGroup":{{"brokerAddrs":{{{table}}},"brokerName":{_text(name)},'
            f'"cluster":{_text(cluster)}}}}}'
        )
        return Response(body=text.encode())

    return {
        205: wipe,  # WIPE_WRITE_PERM_OF_BROKER
        327: add,  # ADD_WRITE_PERM_OF_BROKER
        901: members,  # GET_BROKER_MEMBER_GROUP
    }


def _text(value: str) -> str:
    return as_json(value).decode()
