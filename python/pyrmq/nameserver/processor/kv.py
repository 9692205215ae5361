"""Key-value configuration: 100, 101, 102, 219 (Apache `DefaultRequestProcessor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.server.processors import QUERY_NOT_FOUND, Refused, Response
from pyrmq.server.requests import as_json, required

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def put(request: _core.Request) -> None:
        server.kv_config.put(
            required(request, "namespace"), required(request, "key"), required(request, "value")
        )

    def get(request: _core.Request) -> Response:
        namespace, key = required(request, "namespace"), required(request, "key")
        value = server.kv_config.get(namespace, key)
        if value is None:
            raise Refused(QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
        return Response(fields={"value": value})

    def delete(request: _core.Request) -> None:
        server.kv_config.delete(required(request, "namespace"), required(request, "key"))

    def table(request: _core.Request) -> Response:
        namespace = required(request, "namespace")
        values = server.kv_config.namespace(namespace)
        if values is None:
            raise Refused(QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return Response(body=as_json({"table": values}))

    return {
        100: put,  # PUT_KV_CONFIG
        101: get,  # GET_KV_CONFIG
        102: delete,  # DELETE_KV_CONFIG
        219: table,  # GET_KVLIST_BY_NAMESPACE
    }
