"""The real name server with a master that has no port for slaves."""

from __future__ import annotations

from pyrmq.codes import RequestCode
from tests.e2e.wire import Connection
from tests.interop import artifacts
from tests.interop.ask import await_registered
from tests.interop.name_bodies import TopicConfig, Version
from tests.interop.name_bodies import body_of as registration
from tests.interop.ours import OurBroker
from tests.interop.rocketmq import JavaNameServer


def test_the_real_name_server_takes_our_master_and_tells_slaves_of_no_port_to_dial() -> None:
    artifacts.require_java()
    with JavaNameServer("5.5.0") as names, OurBroker(names.address) as broker:
        await_registered(names.address, broker.address)
        topics = [TopicConfig(f"slave-{number}", 4, 4, 6, 0) for number in range(2)]
        body, check = registration(topics, Version(0, 1), version=513, compressed=False)
        with Connection(names.address) as slave:
            answer = slave.ask(
                RequestCode.REGISTER_BROKER,
                {
                    "brokerName": broker.broker_name,
                    "brokerAddr": "127.0.0.1:9",
                    "clusterName": broker.cluster,
                    "haServerAddr": "127.0.0.1:10",
                    "brokerId": "1",
                    "compressed": "false",
                    "bodyCrc32": str(check),
                },
                body,
            )
            assert answer.code == 0, answer.remark
            # The slave gets its master's address, but no address to replicate from.
            assert answer.fields["masterAddr"] == broker.address
            assert not answer.fields.get("haServerAddr")
            fields = {"brokerName": broker.broker_name, "clusterName": broker.cluster}
            members = slave.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields).body or b""
            assert broker.address.encode() in members
