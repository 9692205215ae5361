"""Brokers with addresses for several networks, and a name server with a listener for each."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.balancer import carry
from tests.e2e.relay import listening
from tests.e2e.wire import Connection, ask, await_true, body_of

from pyrmq import (
    Admin,
    Broker,
    ConfigError,
    Credentials,
    NameServer,
    Producer,
    PullConsumer,
    RmqError,
    Tls,
)
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.remoting import Client
from pyrmq.server.security.directory import make_secure, secure_values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
NOWHERE = "192.0.2.1"
"""An address that no test machine reaches: what brokers register for clients of their network."""


class Cluster:
    """Two brokers that only relays lead to, and a name server whose second port names those.

    Options are those of all three servers.
    """

    def __init__(self, store: Path, stack: ExitStack, **options: Any) -> None:  # noqa: ANN401
        self.relayed = [0, 0]
        self.relays = [
            stack.enter_context(listening(partial(self._relay, at), "127.0.0.2")) for at in (0, 1)
        ]
        self.name_server = NameServer(
            listen_port=0,
            bind_address=HOST,
            address_set_listeners=f"outside={HOST}:0",
            kv_config_path=store / "kvConfig.json",
            **options,
        )
        stack.enter_context(self.name_server)
        self.brokers = [
            Broker(
                listen_port=0,
                bind_address=HOST,
                broker_ip1=NOWHERE,
                broker_name=f"broker-{at}",
                advertised_addresses=f"outside={relay};other=10.0.0.1:{at + 1}",
                namesrv_addr=self.name_server.address,
                store_path_root_dir=str(store / f"broker-{at}"),
                mapped_file_size_commit_log=16 << 20,
                **options,
            )
            for at, relay in enumerate(self.relays)
        ]
        for broker in self.brokers:
            stack.enter_context(broker)

    @property
    def outside(self) -> str:
        """The listener of the set."""
        address: str = self.name_server.health()["listeners"]["outside"]
        return address

    def _relay(self, at: int, client: socket.socket) -> None:
        port = int(self.brokers[at].address.rpartition(":")[2])
        self.relayed[at] += 1
        with socket.create_connection((HOST, port)) as server:
            backward = Thread(target=carry, args=(server, client))
            backward.start()
            carry(client, server)
            backward.join()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def addresses(name_server: str, topic: str) -> list[str]:
    """The brokers' addresses in a route; none if there is no such topic."""
    answer = ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if answer.code != 0:
        return []
    tree: Any = body_of(answer)
    return [address for data in tree["brokerDatas"] for address in data["brokerAddrs"].values()]


def test_clients_of_the_second_listener_work_through_the_addresses_of_its_set(
    cluster: Cluster,
) -> None:
    use(cluster)
    # Clients of the brokers' own network get the usual addresses from the first port.
    assert {one.partition(":")[0] for one in addresses(cluster.name_server.address, "orders")} == {
        NOWHERE
    }


def test_the_second_listener_has_the_tls_and_the_users_of_the_first(tmp_path: Path) -> None:
    make_secure(tmp_path / "secure", ["127.0.0.2"])
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, **secure_values(tmp_path / "secure"))
        use(cluster, Credentials.from_file(tmp_path / "secure" / "admin.toml"))
        asked = (cluster.outside, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        with Client() as plain, pytest.raises(RmqError):
            plain.request(*asked)
        with Client(tls=Tls(tmp_path / "secure" / "ca.pem")) as unsigned:
            assert unsigned.request(*asked).code == ResponseCode.NO_PERMISSION


def use(cluster: Cluster, credentials: Credentials | None = None) -> None:
    """Make a topic, send to it and read it, all through the second listener."""
    given: dict[str, Any] = {"name_server": cluster.outside, "credentials": credentials}
    with Admin(**given) as admin:
        admin.create_topic("orders", queues=2)
        listed = {one.addresses[0] for one in admin.cluster()["DefaultCluster"]}
        assert listed == set(cluster.relays)
    sent = {b"%d" % number for number in range(40)}
    with Producer(**given) as producer:
        used = {producer.send("orders", body).broker for body in sent}
    assert used == {"broker-0", "broker-1"}
    got: set[bytes] = set()
    with PullConsumer(group="readers", start="first", **given) as consumer:
        consumer.assign(consumer.queues("orders"))
        while got != sent:
            messages = consumer.poll(timeout=10)
            assert messages, f"{len(got)} of {len(sent)} messages came"
            got |= {bytes(message.body) for message in messages}
    assert min(cluster.relayed) > 0


def test_members_of_a_broker_name_are_told_by_set(cluster: Cluster) -> None:
    fields = {"brokerName": "broker-1", "clusterName": "DefaultCluster"}
    code = RequestCode.GET_BROKER_MEMBER_GROUP
    outside = ask(cluster.outside, code, fields).body
    group = f'{{0:"{cluster.relays[1]}"}},"brokerName":"broker-1","cluster":"DefaultCluster"'
    assert outside == f'{{"brokerMemberGroup":{{"brokerAddrs":{group}}}}}'.encode()
    assert NOWHERE.encode() in (ask(cluster.name_server.address, code, fields).body or b"")
    listed = {one.name: one.advertised for one in cluster.name_server.brokers()}
    assert listed["broker-1"] == {"outside": cluster.relays[1], "other": "10.0.0.1:2"}


def test_sets_end_with_their_broker_and_come_back_after_restarts(cluster: Cluster) -> None:
    first, second = cluster.relays
    assert addresses(cluster.outside, "TBW102") == [first, second]
    cluster.brokers[0].stop(0)
    assert addresses(cluster.outside, "TBW102") == [second]
    cluster.brokers[0].start()
    assert addresses(cluster.outside, "TBW102") == [first, second]


def test_a_restarted_name_server_learns_the_sets_again(tmp_path: Path) -> None:
    names = NameServer(listen_port=0, bind_address=HOST, kv_config_path=tmp_path / "kv.json")
    with names:
        address = names.address
    with socket.create_server((HOST, 0)) as free:
        outside = f"{HOST}:{free.getsockname()[1]}"
    port = int(address.rpartition(":")[2])
    again = NameServer(
        names.options.with_values(listen_port=port, address_set_listeners=f"outside={outside}")
    )
    with (
        again,
        Broker(
            listen_port=0,
            bind_address=HOST,
            broker_ip1=HOST,
            advertised_addresses="outside=203.0.113.7:30911",
            namesrv_addr=address,
            store_path_root_dir=str(tmp_path / "store"),
        ),
    ):
        assert addresses(outside, "TBW102") == ["203.0.113.7:30911"]
        again.stop(0)
        again.start()
        await_true(lambda: addresses(outside, "TBW102") == ["203.0.113.7:30911"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("203.0.113.7:30911", "does not begin with a name"),
        ("outside=203.0.113.7", "is not host:port"),
        ("outside=203.0.113.7:0", "is not host:port"),
        ("outside=a:1;outside=b:1", "set `outside` is named twice"),
        (";".join(f"s{at}=h:1" for at in range(9)), "more than 8 sets"),
    ],
)
def test_wrong_addresses_are_refused_before_a_port_opens(
    tmp_path: Path, text: str, reason: str
) -> None:
    store = tmp_path / "store"
    broker = Broker(listen_port=0, advertised_addresses=text, store_path_root_dir=str(store))
    with pytest.raises(ConfigError, match=f"advertisedAddresses: .*{reason}"):
        broker.start()
    assert not store.exists()


def test_a_listener_that_cannot_be_opened_leaves_no_port_behind(tmp_path: Path) -> None:
    options: dict[str, Any] = {"bind_address": HOST, "kv_config_path": tmp_path / "kv.json"}
    with pytest.raises(ConfigError, match=r"addressSetListeners: .*is not host:port"):
        NameServer(listen_port=0, address_set_listeners="outside=127.0.0.1", **options).start()
    with pytest.raises(ConfigError, match=r"addressSetListeners: .*no-such\.invalid:1"):
        NameServer(listen_port=0, address_set_listeners="a=no-such.invalid:1", **options).start()
    with socket.create_server((HOST, 0)) as taken, socket.create_server((HOST, 0)) as free:
        port, busy = free.getsockname()[1], taken.getsockname()[1]
        free.close()
        listeners = f"inside={HOST}:0;outside={HOST}:{busy}"
        with pytest.raises(RmqError, match=f"{HOST}:{busy}"):
            NameServer(listen_port=port, address_set_listeners=listeners, **options).start()
        with NameServer(listen_port=port, **options) as server:
            assert server.health()["listeners"] == {}


def test_a_registration_with_a_wrong_set_is_refused_with_the_reason(cluster: Cluster) -> None:
    fields = {
        "brokerName": "strange",
        "brokerAddr": "10.0.0.9:10911",
        "clusterName": "C",
        "brokerId": "0",
        "compressed": "false",
        "advertisedAddresses": "outside",
    }
    with Connection(cluster.name_server.address) as connection:
        answer = connection.ask(RequestCode.REGISTER_BROKER, fields, b"{}")
    assert answer.code == 1
    assert "field `advertisedAddresses`: `outside` does not begin with" in (answer.remark or "")
