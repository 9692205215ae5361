"""Key-value configuration: 100, 101, 102, 219 (Apache `DefaultRequestProcessor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.codes import ResponseCode
from pyrmq.server.processors import Refused, Response
from pyrmq.server.requests import as_json

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.nameserver.server import NameServer
    from pyrmq.server.processors import Handler


def rows(server: NameServer) -> dict[int, Handler]:
    """The handlers of this family."""

    def put(request: _core.Request) -> None:
        namespace, key = request.get("namespace"), request.get("key")
        if namespace is None or key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null: a value needs both")
        value = request.get("value")
        if value is None:
            # Apache stores a null, which looks the same as no value.
            server.kv_config.delete(namespace, key)
        else:
            server.kv_config.put(namespace, key, value)

    def get(request: _core.Request) -> Response:
        namespace, key = request.get("namespace"), request.get("key")
        value = server.kv_config.get(namespace or "", key or "")
        if value is None or namespace is None or key is None:
            named = f"Namespace: {_named(namespace)} Key: {_named(key)}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, {named}")
        return Response(fields={"value": value})

    def delete(request: _core.Request) -> None:
        namespace, key = request.get("namespace"), request.get("key")
        if namespace is not None and key is not None:
            server.kv_config.delete(namespace, key)

    def table(request: _core.Request) -> Response:
        namespace = request.get("namespace")
        values = None if namespace is None else server.kv_config.namespace(namespace)
        if values is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {_named(namespace)}"
            )
        return Response(body=as_json({"table": values}))

    return {
        100: put,  # PUT_KV_CONFIG
        101: get,  # GET_KV_CONFIG
        102: delete,  # DELETE_KV_CONFIG
        219: table,  # GET_KVLIST_BY_NAMESPACE
    }


def _named(text: str | None) -> str:
    """A header field as Apache's remarks show it."""
    return "null" if text is None else text
