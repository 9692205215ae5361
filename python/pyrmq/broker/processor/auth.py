"""Requests 3001 to 3010: the users and policies of a broker (Apache `AdminBrokerProcessor`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import ConfigError
from pyrmq.server.processors import Refused, Response

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.broker.server import Broker
    from pyrmq.server.processors import Handler
    from pyrmq.server.security.users import UserFile

_CHANGES = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
)
_READS = (
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)
_NAMED = frozenset(
    (
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
    )
)


def rows(broker: Broker) -> dict[int, Handler]:
    """The handlers of these codes."""

    def users() -> UserFile:
        if broker.users is None:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                "this broker has no users and policies: start it with authenticationEnabled=true",
            )
        return broker.users

    def change(request: _core.Request) -> Response:
        file = users()
        _check_name(request)
        try:
            file.change(request.code, request.fields, request.body or b"")
        except ConfigError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error
        return Response()

    def read(request: _core.Request) -> Response:
        file = users()
        _check_name(request)
        try:
            return Response(body=file.guard.answer_to_read(request.code, request.fields))
        except ConfigError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error

    changes: dict[int, Handler] = {int(code): change for code in _CHANGES}
    return changes | {int(code): read for code in _READS}


def _check_name(request: _core.Request) -> None:
    if request.code in _NAMED and not (request.get("username") or "").strip():
        raise Refused(ResponseCode.INVALID_PARAMETER, "The username is blank")
