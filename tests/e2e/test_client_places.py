"""How a client finds its servers: address servers, units, the fast port."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.e2e.wire import ask

from pyrmq import ConfigError, NameServerUnreachable, Producer, PullConsumer, RmqError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster


class Addresses(BaseHTTPRequestHandler):
    """Serves a list of name servers, and records requests."""

    status: ClassVar[int]
    told: ClassVar[str]
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.told.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def addresses(told: str, status: int = 200, port: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Run an address server; yield its address and its requests."""
    kept: list[str] = []
    members = {"told": told, "status": status, "asked": kept}
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Telling", (Addresses,), members))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_address_server_tells_the_name_servers(address: str, topic: str) -> None:
    with addresses(f"{address};{address}\r\nsecond line") as (place, asked):
        with Producer(address_server=place) as producer:
            producer.send(topic, b"x")
        with PullConsumer(address_server=f"http://{place}/own/list", group=topic) as consumer:
            consumer.subscribe(topic)
            assert consumer.poll(timeout=10)[0].body == b"x"
        with Producer(address_server=place, unit_name="north") as producer:
            producer.send(topic, b"x")
    assert asked[0] == "/rocketmq/nsaddr"
    assert asked[1] == "/own/list"
    assert asked[2] == "/rocketmq/nsaddr-north?nofix=1"


@pytest.mark.parametrize(
    ("told", "status", "match"),
    [
        ("", 200, "its list is empty"),
        ("127.0.0.1:1", 404, "404"),
        ("127.0.0.1:1", 200, "127.0.0.1:1: Connection refused"),
    ],
)
def test_an_address_server_that_does_not_help_is_told(told: str, status: int, match: str) -> None:
    with (
        addresses(told, status) as (place, _),
        Producer(address_server=place) as producer,
        pytest.raises(NameServerUnreachable, match=match),
    ):
        producer.send("any", b"x")


def test_an_address_server_that_is_away_is_named_and_found_when_it_comes(
    address: str, topic: str
) -> None:
    with addresses(address) as (place, _):
        pass
    port = int(place.rpartition(":")[2])
    with Producer(address_server=place) as producer:
        with pytest.raises(NameServerUnreachable, match=f"address server http://{place}/rocketmq"):
            producer.send(topic, b"x")
        with addresses(address, port=port):
            producer.send(topic, b"x")


@pytest.mark.parametrize("wrong", ["", "a b", "host/path", "host:none", "http://", "host:0"])
def test_a_wrong_address_server_is_an_error_of_its_own(wrong: str) -> None:
    with pytest.raises(ConfigError, match="option `address_server`"):
        Producer(address_server=wrong)


def test_an_address_server_and_name_servers_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="not both"):
        Producer(name_server="127.0.0.1:1", address_server="127.0.0.1:2")


@pytest.mark.parametrize("option", ["unit_name", "instance_name"])
def test_a_name_that_would_break_the_client_id_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: "a@b"}
    with pytest.raises(ConfigError, match=f"option `{option}`"):
        Producer(name_server="127.0.0.1:1", **options)


def test_a_unit_is_part_of_the_client_id(shared: Cluster, topic: str) -> None:
    options: dict[str, Any] = {
        "name_server": shared.name_server,
        "group": topic,
        "instance_name": "one",
    }
    with Producer(**options, unit_name="north", unit_mode=True) as producer:
        producer._request_reply.heartbeat(topic, 3000)
        assert producer._request_reply.core.client_id.endswith("@one@north")
        answer = ask(shared.broker.address, 204, {"producerGroup": topic, "topic": topic})
        assert b"@one@north" in (answer.body or b"")
        producer.send(topic, b"x")


def test_sends_go_to_the_fast_port_when_asked(topic: str) -> None:
    with cluster() as running, Producer(name_server=running.name_server, retries=0) as plain:
        host, port = running.broker.address.rsplit(":", 1)
        with Producer(name_server=running.name_server, retries=0, vip_channel=True) as producer:
            producer.send(topic, b"x")
            plain.send(topic, b"x")
            running.stop_broker()
            with pytest.raises(RmqError, match=f"{host}:{int(port) - 2}"):
                producer.send(topic, b"x", timeout=0.3)
            with pytest.raises(RmqError, match=f"{host}:{port}"):
                plain.send(topic, b"x", timeout=0.3)
