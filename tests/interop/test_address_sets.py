"""The real name server with a broker that announces address sets."""

from __future__ import annotations

from pyrmq.codes import RequestCode
from tests.e2e.wire import ask
from tests.interop import artifacts
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker
from tests.interop.rocketmq import JavaNameServer


def test_the_real_name_server_ignores_the_sets_of_our_broker(version: str) -> None:
    artifacts.require_java()
    sets = {"advertisedAddresses": "outside=203.0.113.7:30911"}
    with JavaNameServer(version) as names, OurBroker(names.address, properties=sets) as broker:
        await_registered(names.address, broker.address)
        for code, fields in (
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}),
            (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
        ):
            body = ask(names.address, code, fields).body or b""
            assert broker.address.encode() in body
            assert b"203.0.113.7" not in body
