"""Lists of topics, and their deletion: 206, 216, 224, 304, 311, 312, 313.

In Apache `DefaultRequestProcessor` over `RouteInfoManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.codes import ResponseCode
from pyrmq.server.processors import Refused, Response
from pyrmq.server.requests import as_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def every(request: _core.Request) -> Response:
        del request
        if not server.options.enable_all_topic_list:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "disable: enableAllTopicList is false on this name server",
            )
        return _topics(server.core.topics())

    def of_cluster(request: _core.Request) -> Response:
        _allowed(server)
        return _topics(server.core.topics_of_cluster(request.get("cluster") or ""))

    def of_system(request: _core.Request) -> Response:
        del request
        topics, address = server.core.system_topics()
        return _topics(topics, address)

    def of_units(pick: str) -> Callable[[_core.Request], Response]:
        def unit(request: _core.Request) -> Response:
            del request
            _allowed(server)
            return _topics(server.core.unit_topics(pick))

        return unit

    def delete(request: _core.Request) -> None:
        server.core.delete_topic(request.get("topic") or "", request.get("clusterName") or None)

    return {
        206: every,  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        224: of_cluster,  # GET_TOPICS_BY_CLUSTER
        304: of_system,  # GET_SYSTEM_TOPIC_LIST_FROM_NS
        311: of_units("unit"),  # GET_UNIT_TOPIC_LIST
        312: of_units("has_unit_sub"),  # GET_HAS_UNIT_SUB_TOPIC_LIST
        313: of_units("has_unit_sub_ununit"),  # GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST
        216: delete,  # DELETE_TOPIC_IN_NAMESRV
    }


def _allowed(server: NameServer) -> None:
    if not server.options.enable_topic_list:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, "disable: enableTopicList is false on this name server"
        )


def _topics(topics: list[str], address: str | None = None) -> Response:
    tree: dict[str, object] = {} if address is None else {"brokerAddr": address}
    return Response(body=as_json({**tree, "topicList": topics}))
