"""Limits of clients, slow failed logins, and the port of administrators, on real servers."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from operator import gt
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pairs import Pair
from tests.e2e.test_audit import lines
from tests.e2e.test_security import bob, people, root, write_private
from tests.e2e.timing import least
from tests.e2e.wire import Connection, await_true
from tests.interop.jvm import free_port

from pyrmq import (
    ConfigError,
    Credentials,
    NameServer,
    Producer,
    PullConsumer,
    RmqError,
    Tls,
)
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BrokerOptions, NameServerOptions
from pyrmq.remoting import Client
from pyrmq.server.security.directory import make_secure, secure_values
from pyrmq.server.security.protection import native_protection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = {
    "topic": "made",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "defaultTopic": "TBW102",
    "topicSysFlag": "0",
    "order": "false",
}


class Limited(Pair):
    """Two brokers and a name server with the same options of protection."""

    def __init__(self, store: Path, **options: Any) -> None:  # noqa: ANN401 - of both servers
        self.admin_ports = [free_port() for _ in range(3)]
        each = [{"admin_listen_port": port} for port in self.admin_ports]
        super().__init__(store, each, **options)


@pytest.fixture
def administered(tmp_path: Path) -> Iterator[Limited]:
    cluster = Limited(tmp_path)
    yield cluster
    cluster.stop()


def test_only_the_port_of_administrators_serves_them(
    administered: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    with Client() as client:
        for broker, port in zip(administered.brokers, administered.admin_ports[1:], strict=True):
            refused = client.request(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert f"127.0.0.1:{port}" in (refused.remark or "")
            assert client.request(broker.address, RequestCode.GET_BROKER_CONFIG).code == 16
            there = f"127.0.0.1:{port}"
            made = client.request(there, RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
            assert made.code == 0
            assert client.request(there, RequestCode.GET_BROKER_CONFIG).code == 0
        here, there = administered.address, f"127.0.0.1:{administered.admin_ports[0]}"
        pair = {"namespace": "a", "key": "b", "value": "c"}
        assert client.request(here, RequestCode.PUT_KV_CONFIG, pair).code == 16
        assert client.request(there, RequestCode.PUT_KV_CONFIG, pair).code == 0
        assert client.request(here, RequestCode.GET_KV_CONFIG, pair).code == 0
    await_true(lambda: bool(lines(caplog, "refused", "PUT_KV_CONFIG", "adminListenPort")))
    # Producers and consumers need no such request; brokers register at the ordinary port.
    with Producer(name_server=administered.address) as producer:
        for _ in range(16):
            producer.send("made", b"x")
    with PullConsumer(name_server=administered.address, group="usual") as consumer:
        consumer.subscribe("made")
        found = 0
        while found < 16:
            found += len(consumer.poll(timeout=30))
        consumer.commit()


def test_the_port_of_administrators_listens_on_the_loopback_interface(
    administered: Limited,
) -> None:
    for port in administered.admin_ports:
        Connection(f"127.0.0.1:{port}").close()
        with pytest.raises(ConnectionRefusedError):
            Connection(f"127.0.0.2:{port}")


def test_the_port_of_administrators_has_the_tls_and_the_users_of_the_others(
    tmp_path: Path,
) -> None:
    files = tmp_path / "secure"
    make_secure(files)
    owner, app = (Credentials.from_file(files / f"{name}.toml") for name in ("admin", "app"))
    cluster = Limited(tmp_path, **secure_values(files))
    codes = (RequestCode.GET_NAMESRV_CONFIG, *[RequestCode.GET_BROKER_CONFIG] * 2)
    try:
        for port, code in zip(cluster.admin_ports, codes, strict=True):
            there = f"127.0.0.1:{port}"
            with Client(credentials=owner) as known, Client(credentials=app) as other:
                assert known.request(there, code).code == 0
                assert other.request(there, code).code == ResponseCode.NO_PERMISSION
            with Client(tls=Tls(files / "ca.pem")) as unsigned:
                assert unsigned.request(there, code).code == ResponseCode.NO_PERMISSION
            with Client() as plain, pytest.raises(RmqError):
                plain.request(there, code)
    finally:
        cluster.stop()


def test_an_address_has_its_connections_and_requests(tmp_path: Path) -> None:
    cluster = Limited(tmp_path, max_connections_per_address=12, max_requests_per_address=40)
    try:
        for broker in cluster.brokers:
            with ExitStack() as stack:
                many = [Connection(broker.address) for _ in range(40)]
                for one in many:
                    stack.callback(one.close)
                # The server admits connections side by side, so which of them are served is open.
                served = sum(is_answered(one) for one in many)
                assert 0 < served <= 12
            await_true(lambda broker=broker: is_served(broker.address))
            busy = Connection(broker.address)
            answers = [
                busy.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
                for _ in range(200)
            ]
            busy.close()
            refused = [one for one in answers if one.code == ResponseCode.SYSTEM_BUSY]
            assert refused
            assert "this address may use 40 requests a second" in (refused[0].remark or "")
        # Producers take it as they take any busy broker.
        with Producer(name_server=cluster.address) as producer:
            for _ in range(30):
                producer.send("TBW102", b"x", timeout=20)
    finally:
        cluster.stop()


def is_answered(one: Connection) -> bool:
    """Whether a server answers on this connection."""
    try:
        return one.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}).code == 0
    except OSError:
        return False


def is_served(address: str) -> bool:
    """Whether a new connection to a server is answered."""
    one = Connection(address)
    try:
        return is_answered(one)
    finally:
        one.close()


@pytest.mark.parametrize("longest", [5000, 0])
def test_failed_logins_are_slowed_and_right_ones_are_not(tmp_path: Path, longest: int) -> None:
    file = write_private(tmp_path / "users.json", people())
    server = NameServer(
        listen_port=0,
        bind_address="127.0.0.1",
        authentication_enabled=True,
        auth_config_path=str(file),
        failed_login_max_delay=longest,
    ).start()
    wrong = Credentials("bob", "a-wrong-secret")
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    try:
        with (
            Client() as stranger,
            Client(credentials=wrong) as guesser,
            Client(credentials=root()) as owner,
        ):

            def wait(client: Client, answer: int) -> float:
                begin = monotonic()
                assert client.request(server.address, code, timeout=10).code == answer
                return monotonic() - begin

            waits = [wait(guesser, 16) for _ in range(6)]
            if longest:
                assert all(map(gt, waits[3:], (0.1, 0.2, 0.4))), waits
            else:
                assert min(waits[3:]) < 0.1, waits
            # The next guess would wait for more than half a second. A request that names no user
            # guesses nothing.
            for client, answer in ((owner, 0), (stranger, 16)):
                assert least(partial(wait, client, answer), 0.1) < 0.1
    finally:
        server.stop(0)


def test_a_user_has_a_rate(tmp_path: Path) -> None:
    file = write_private(tmp_path / "users.json", people())
    server = NameServer(
        listen_port=0,
        bind_address="127.0.0.1",
        authentication_enabled=True,
        auth_config_path=str(file),
        max_requests_per_user=10,
    ).start()
    try:
        with Client(credentials=bob()) as client, Client(credentials=root()) as other:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            answers = [client.request(server.address, code) for _ in range(100)]
            refused = [one for one in answers if one.code == ResponseCode.SYSTEM_BUSY]
            assert "this user may use 10 requests a second" in (refused[0].remark or "")
            assert answers[0].code == 0
            assert other.request(server.address, code).code == 0
    finally:
        server.stop(0)


@pytest.mark.parametrize("kind", [BrokerOptions, NameServerOptions])
def test_users_that_nobody_checks_have_no_limits(kind: Any) -> None:  # noqa: ANN401 - either server
    for option in ("max_requests_per_user", "max_bytes_per_user"):
        with pytest.raises(ConfigError, match="without `authenticationEnabled`"):
            native_protection(kind(**{option: 5}))
    with pytest.raises(ConfigError, match='`adminBindAddress` is "nowhere"'):
        NameServer(listen_port=0, admin_listen_port=1, admin_bind_address="nowhere").start()
