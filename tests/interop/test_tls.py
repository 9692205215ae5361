"""TLS with RocketMQ 5.5.0: the Java client on our servers, our clients on the real ones."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer, RmqError, Tls
from pyrmq.remoting import Client, Command
from pyrmq.server.security.directory import make_secure
from tests.e2e.hostile_tls import hello
from tests.e2e.test_tls_handshakes import expired
from tests.e2e.wire import await_true
from tests.interop import artifacts
from tests.interop.driver import Driver
from tests.interop.jvm import temporary_directory
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker, JavaNameServer, write_properties

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "5.5.0"
ROUTE, NO_TOPIC = 105, 17
PATHS = ("certPath", "keyPath")


@pytest.fixture(scope="module")
def files() -> Path:
    directory = temporary_directory("tls") / "secure"
    make_secure(directory)
    return directory


def flags(files: Path, *, server: bool) -> list[str]:
    """JVM flags by which Apache's classes use and check certificates; the key is PKCS#8."""
    options = {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": files / "ca.pem",
    }
    if server:
        options |= {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": files / "server.pem",
            "tls.server.keyPath": files / "server-key.pem",
        }
    return [f"-D{key}={value}" for key, value in options.items()]


def properties(files: Path) -> dict[str, object]:
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": files / "server.pem",
        "tls.server.keyPath": files / "server-key.pem",
        "tls.client.trustCertPath": files / "ca.pem",
    }


class TlsDriver(Driver):
    """The Java client with `-Dtls.enable=true`."""

    def __init__(self, files: Path, version: str = VERSION) -> None:
        super().__init__(version)
        self._jvm += flags(files, server=False)


def test_the_java_client_sends_and_reads_through_tls_on_our_servers(files: Path) -> None:
    artifacts.require_java()
    with (
        OurNameServer(properties=properties(files)) as names,
        OurBroker(names.address, properties=properties(files)),
        TlsDriver(files) as driver,
    ):
        with Client() as plain, pytest.raises(RmqError):
            plain.request(names.address, ROUTE, {"topic": "TBW102"})
        with Admin(name_server=names.address, tls=Tls(files / "ca.pem")) as admin:
            await_true(admin.cluster, seconds=30)
            admin.create_topic("orders")
        with driver.producer(names.address) as producer:
            driver.send(producer, "orders", count=8)
            driver.send(producer, "orders", size=3_000_000, start=8, prefix="huge")
            batch = driver.send(producer, "orders", mode="batch", count=8, start=20)
        assert batch
        with driver.lite(names.address, "orders", group="reader") as consumer:
            rows = driver.call("lite.poll", id=consumer, count=17)["messages"]
        assert len(rows) == 17


@pytest.mark.nightly
def test_our_clients_and_brokers_use_tls_with_the_real_servers(files: Path) -> None:
    artifacts.require_java()
    names = JavaNameServer(VERSION)
    names._jvm += flags(files, server=True)
    with names:
        broker = JavaBroker(VERSION, names.address)
        broker._jvm += flags(files, server=True)
        tls = Tls(files / "ca.pem")
        ours = OurBroker(names.address, properties={"brokerName": "ours", **properties(files)})
        with broker, ours, Admin(name_server=names.address, tls=tls) as admin:
            # Both brokers register through TLS, which is all that the name server takes.
            await_true(
                lambda: sum(map(len, admin.cluster().values())) == 2,
                seconds=60,
            )
            admin.create_topic("orders")
            with Client() as plain, pytest.raises(RmqError):
                plain.request(broker.address, ROUTE, {"topic": "orders"})
            with Producer(name_server=names.address, tls=tls) as producer:
                brokers = {producer.send("orders", f"{number}").broker for number in range(40)}
                producer.send("orders", b"x" * 3_000_000)
                producer.send_batch("orders", [b"1", b"2", b"3"])
            assert brokers == {"broker-a", "ours"}
            with PullConsumer(name_server=names.address, group="kitchen", tls=tls) as consumer:
                consumer.subscribe("orders")
                found = 0
                while found < 44:
                    found += len(consumer.poll(timeout=30))
                assert found == 44


def answers(address: str, files: Path, presented: tuple[Path, Path]) -> bool:
    """Whether a server serves a client of Python's that presents this certificate and key."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=files / "ca.pem")
    context.load_cert_chain(*presented)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as link,
    ):
        try:
            link.sendall(Command(ROUTE, {"topic": "no such"}).encode())
            # With TLS 1.3 the handshake is over for the client before the server has decided.
            return bool(link.recv(4))
        except OSError:
            return False


@pytest.mark.nightly
def test_certificates_are_refused_as_by_and_at_the_real_name_server(files: Path) -> None:
    """Clients' certificates on both sides, and a real server's, which ours would not start with."""
    artifacts.require_java()
    directory = temporary_directory("tls-times")
    old = expired(files, directory)
    make_secure(directory / "other")
    valid = (files / "server.pem", files / "server-key.pem")
    strange = (directory / "other" / "server.pem", directory / "other" / "server-key.pem")
    needs: dict[str, object] = {
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": files / "ca.pem",
    }
    java = JavaNameServer(VERSION)
    java._jvm += [*flags(files, server=True), *(f"-D{key}={text}" for key, text in needs.items())]
    with java, OurNameServer(properties=properties(files) | needs) as ours:
        for presented, is_served in ((valid, True), (old, False), (strange, False)):
            served = [answers(one.address, files, presented) for one in (java, ours)]
            assert served == [is_served] * 2, presented
    with Client(tls=Tls(files / "ca.pem")) as client:
        for presented, text in ((old, "has expired"), (strange, "authority that is not trusted")):
            server = JavaNameServer(VERSION)
            server._jvm += [
                *flags(files, server=True),
                *(f"-Dtls.server.{key}={path}" for key, path in zip(PATHS, presented, strict=True)),
            ]
            with server, pytest.raises(RmqError, match=text):
                client.request(server.address, ROUTE, {"topic": "orders"})
        named = Tls(files / "ca.pem", server_name="elsewhere.example")
        server = JavaNameServer(VERSION)
        server._jvm += flags(files, server=True)
        with server, Client(tls=named) as elsewhere:
            assert client.request(server.address, ROUTE, {"topic": "no such"}).code == NO_TOPIC
            with pytest.raises(RmqError, match="for another host"):
                elsewhere.request(server.address, ROUTE, {"topic": "no such"})
            # Java's own list of versions is as short, whatever its documents say.
            assert refuses_tls_1_1(server.address)


def refuses_tls_1_1(address: str) -> bool:
    """Whether a server ends a handshake that offers nothing above TLS 1.1."""
    record = bytearray(hello(most=ssl.TLSVersion.TLSv1_2))
    # Behind the head of the record and that of the message; nothing else names a version.
    record[9:11] = b"\x03\x02"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as peer:
        peer.sendall(record)
        found = peer.recv(1)
    return found in {b"", b"\x15"}


def test_the_file_of_apaches_tls_options_starts_our_server(files: Path) -> None:
    """`tls.config.file` as Apache's documents have it, with the key's password."""
    import subprocess

    locked = files.parent / "locked.pem"
    subprocess.run(
        [
            *("openssl", "pkcs8", "-topk8", "-v2", "aes-256-cbc", "-passout", "pass:s3cret"),
            *("-in", str(files / "server-key.pem"), "-out", str(locked)),
        ],
        check=True,
        timeout=30,
    )
    file = write_properties(
        files.parent / "tls.properties",
        {
            "tls.test.mode.enable": "false",
            "tls.server.mode": "enforcing",
            "tls.server.certPath": files / "server.pem",
            "tls.server.keyPath": locked,
            "tls.server.keyPassword": "s3cret",
            "tls.client.trustCertPath": files / "ca.pem",
        },
    )
    file.chmod(0o600)
    with (
        OurNameServer(properties={"tls.config.file": file}) as names,
        Client(tls=Tls(files / "ca.pem")) as client,
    ):
        assert client.request(names.address, ROUTE, {"topic": "none"}).code == 17
