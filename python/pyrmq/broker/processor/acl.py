"""Requests 50 to 54: the accounts of 4.x of a broker (Apache 4.9 `AdminBrokerProcessor`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import ConfigError
from pyrmq.server.processors import Refused, Response

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.broker.server import Broker
    from pyrmq.server.processors import Handler
    from pyrmq.server.security.plain_acl import AclFiles

_FAILED = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: 209,
    RequestCode.DELETE_ACL_CONFIG: 210,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: 211,
}
"""Response codes of 4.9, whose numbers 5.x uses otherwise (Apache 4.9 `ResponseCode`)."""


def rows(broker: Broker) -> dict[int, Handler]:
    """The handlers of these codes."""

    def accounts() -> AclFiles:
        if broker.acl is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "this broker has no accounts of 4.x: start it with aclEnable=true",
            )
        return broker.acl

    def change(request: _core.Request) -> Response:
        try:
            accounts().change(request.code, request.fields)
        except ConfigError as error:
            raise Refused(_FAILED[RequestCode(request.code)], str(error)) from error
        return Response()

    def versions(request: _core.Request) -> Response:
        del request
        files = accounts()
        known = {
            path: {"counter": counter, "timestamp": timestamp}
            for path, counter, timestamp in files.guard.versions
        }
        main = known.get(files.main, {"counter": 0, "timestamp": 0})
        return Response(
            fields={
                "version": json.dumps(main),
                "allAclFileVersion": json.dumps(known),
                "brokerName": broker.options.broker_name,
                "brokerAddr": broker.address,
                "clusterName": broker.options.broker_cluster_name,
            }
        )

    def show(request: _core.Request) -> Response:
        del request
        return Response(body=accounts().guard.listed())

    changes: dict[int, Handler] = {int(code): change for code in _FAILED}
    return changes | {
        int(RequestCode.GET_BROKER_CLUSTER_ACL_INFO): versions,
        int(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG): show,
    }
