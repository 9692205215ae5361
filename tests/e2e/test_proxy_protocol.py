"""Clients behind a load balancer: servers see whose connection it is, plain and through TLS."""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.balancer import BALANCER, balanced, binary_header, text_header
from tests.e2e.test_audit import lines as audited
from tests.e2e.test_plain_acl import home as accounts
from tests.e2e.test_request_log import lines as requests
from tests.e2e.wire import Connection, await_true

from pyrmq import (
    Broker,
    ConfigError,
    Credentials,
    NameServer,
    Producer,
    PullConsumer,
    ReceivedMessage,
)
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BrokerOptions, NameServerOptions
from pyrmq.errors import PermissionDenied
from pyrmq.server.security.directory import make_secure, secure_values
from pyrmq.server.security.protection import native_protection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CLIENT = "192.0.2.7"
UNKNOWN = 29_999
"""A request code that no server knows."""


class Cluster:
    """A name server and two brokers, whose clients come through a balancer."""

    def __init__(
        self,
        store: Path,
        of_brokers: Mapping[str, Any] | None = None,
        /,
        **options: Any,  # noqa: ANN401 - of both servers
    ) -> None:
        both: dict[str, Any] = {
            "listen_port": 0,
            "bind_address": "127.0.0.1",
            "proxy_protocol_sources": "10.0.0.0/8; 127.0.0.1",
            **options,
        }
        self.name_server = NameServer(**both).start()
        self.brokers = [
            Broker(
                broker_name=f"broker{at}",
                broker_ip1=BALANCER,
                namesrv_addr=self.name_server.address,
                store_path_root_dir=str(store / f"store{at}"),
                mapped_file_size_commit_log=64 << 20,
                **both,
                **(of_brokers or {}),
            )
            for at in (1, 2)
        ]
        for broker in self.brokers:
            broker.start().await_registration()
        addresses = [server.address for server in self.brokers]
        addresses.insert(0, self.name_server.address)
        self.ports = [int(address.rpartition(":")[2]) for address in addresses]
        self.address = f"{BALANCER}:{self.ports[0]}"

    def stop(self) -> None:
        """Stop all of them at once."""
        for broker in self.brokers:
            broker.stop(0)
        self.name_server.stop(0)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("header", [text_header, binary_header])
def test_messages_and_listings_have_the_address_of_the_client(plain: Cluster, header: Any) -> None:  # noqa: ANN401 - either version
    with balanced(plain.ports, CLIENT, header):
        given: dict[str, Any] = {"name_server": plain.address}
        with Producer(**given) as producer:
            for _ in range(16):
                producer.send("TBW102", b"x")
        with PullConsumer(group="behind", **given) as consumer:
            consumer.subscribe("TBW102")
            messages: list[ReceivedMessage] = []
            while len(messages) < 16:
                messages += consumer.poll(timeout=30)
            assert {message.broker for message in messages} == {"broker1", "broker2"}
            assert {message.born_host.rpartition(":")[0] for message in messages} == {CLIENT}
            for port in plain.ports[1:]:
                direct = Connection(f"127.0.0.1:{port}")
                answer = direct.ask(
                    RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "behind"}
                )
                direct.close()
                (found,) = json.loads(answer.body or b"")["connectionSet"]
                assert found["clientAddr"].startswith(f"{CLIENT}:")


def test_a_header_from_elsewhere_is_refused_and_the_log_names_the_fix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "pyrmq"):
        cluster = Cluster(tmp_path, proxy_protocol_sources="192.0.2.1")
        try:
            for port in cluster.ports:
                for _ in range(3):
                    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
                        one.sendall(binary_header(CLIENT, 1))
                        assert one.recv(1) == b""
                Connection(f"127.0.0.1:{port}").close()
            await_true(lambda: caplog.text.count("`proxyProtocolSources`") == 3)
        finally:
            cluster.stop()
    assert "is not in `proxyProtocolSources`: add it there" in caplog.text


def test_the_log_of_requests_has_the_address_of_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The lowest level of the process's log is that of the loggers when its first server starts.
    with caplog.at_level(logging.INFO, "pyrmq"):
        cluster = Cluster(tmp_path)
        try:
            with balanced(cluster.ports, CLIENT):
                for port in cluster.ports:
                    one = Connection(f"{BALANCER}:{port}")
                    assert one.ask(UNKNOWN).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                    one.close()
            await_true(lambda: len(requests(caplog, "refused", f"code={UNKNOWN}")) == 3)
        finally:
            cluster.stop()
    assert len(requests(caplog, f"from={CLIENT}:", f"code={UNKNOWN}")) == 3


def test_white_addresses_are_those_of_clients(tmp_path: Path) -> None:
    # 198.51.100.* may do everything there; neither this machine nor the balancer may.
    cluster = Cluster(
        tmp_path, {"acl_enable": True, "rocketmq_home": str(accounts(tmp_path / "home"))}
    )
    try:
        for client, is_white in ((CLIENT, False), ("198.51.100.7", True)):
            with balanced(cluster.ports, client):
                for port in cluster.ports[1:]:
                    one = Connection(f"{BALANCER}:{port}")
                    answer = one.ask(RequestCode.GET_BROKER_CONFIG)
                    one.close()
                    assert (answer.code == 0) == is_white, (client, answer)
    finally:
        cluster.stop()


def test_policies_and_the_audit_log_see_the_client_through_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "secure"
    make_secure(directory, [BALANCER])
    users = json.loads((directory / "users.json").read_text(encoding="utf-8"))
    for acl in users["acls"]:
        for policy in acl["policies"]:
            for entry in policy["entries"]:
                entry["sourceIps"] = ["192.0.2.0/24"]
    (directory / "users.json").write_text(json.dumps(users), encoding="utf-8")
    app = Credentials.from_file(directory / "app.toml")
    cluster = Cluster(tmp_path, **secure_values(directory))
    try:
        given: dict[str, Any] = {"name_server": cluster.address, "credentials": app}
        with balanced(cluster.ports, CLIENT), Producer(**given) as producer:
            producer.send("TBW102", b"from where the policies allow it")
        with (
            balanced(cluster.ports, "198.51.100.7"),
            Producer(retries=0, **given) as producer,
            pytest.raises(PermissionDenied, match=r"from 198\.51\.100\.7"),
        ):
            producer.send("TBW102", b"from elsewhere")
        await_true(lambda: bool(audited(caplog, "refused", 'user="app"', "from=198.51.100.7:")))
        assert not audited(caplog, "from=127.0.0.1")
    finally:
        cluster.stop()


@pytest.mark.parametrize("text", ["10.0.0.0/33", "balancer.example", "10.0.0.1,10.0.0.2"])
@pytest.mark.parametrize("kind", [BrokerOptions, NameServerOptions])
def test_a_wrong_source_is_refused_by_name(kind: Any, text: str) -> None:  # noqa: ANN401 - either server
    with pytest.raises(ConfigError, match="`proxyProtocolSources` names"):
        native_protection(kind(proxy_protocol_sources=text))
