"""What handshakes accept: certificates and their times, names, versions, one for each session."""

from __future__ import annotations

import socket
import ssl
import subprocess
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.hostile_tls import hello, renegotiated
from tests.e2e.test_tls import peer_certificate

from pyrmq import ConfigError, NameServer, RmqError, Tls
from pyrmq.codes import RequestCode
from pyrmq.remoting import Client, Command
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
HANDSHAKE, ALERT, PROTOCOL_VERSION = 0x16, 0x15, 70
TLS_1_1, TLS_1_2 = b"\x03\x02", b"\x03\x03"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("handshakes") / "secure"
    make_secure(directory)
    return directory


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[NameServer]:
    with enforcing(files) as made:
        yield made


def enforcing(files: Path, **options: Any) -> NameServer:  # noqa: ANN401 - of the name server
    """Return a name server that takes TLS alone; it has not started."""
    return NameServer(
        listen_port=0,
        bind_address="127.0.0.1",
        tls_server_mode="enforcing",
        tls_server_cert_path=str(files / "server.pem"),
        tls_server_key_path=str(files / "server-key.pem"),
        **options,
    )


def test_an_expired_certificate_is_refused_by_the_client_and_by_the_server(
    files: Path, tmp_path: Path
) -> None:
    certificate, key = expired(files, tmp_path)
    # Ours would not start with it, so the server and the client that present it are Python's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True):
                pass

        serving = Thread(target=serve)
        serving.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            Client(tls=Tls(files / "ca.pem")) as client,
            pytest.raises(RmqError, match="its certificate has expired"),
        ):
            client.request(address, ROUTE, {"topic": "orders"})
        serving.join(10)
    with requiring(files) as names:
        host, port = names.address.split(":")
        valid = (files / "server.pem", files / "server-key.pem")
        for presented, is_served in ((valid, True), ((certificate, key), False)):
            mine = ssl.create_default_context(cafile=files / "ca.pem")
            mine.load_cert_chain(*presented)
            with (
                socket.create_connection((host, int(port)), 5) as plain,
                mine.wrap_socket(plain, server_hostname="localhost") as link,
            ):
                link.sendall(Command(ROUTE, {"topic": "no such"}).encode())
                if is_served:
                    assert link.recv(4)
                else:
                    with pytest.raises(ssl.SSLError, match="CERTIFICATE_EXPIRED"):
                        link.recv(4)
        with pytest.raises(ConfigError, match="it expired at"):
            Client(tls=Tls(files / "ca.pem", cert=certificate, key=key))


def expired(files: Path, directory: Path) -> tuple[Path, Path]:
    """Issue a certificate that ended yesterday by the directory's authority, and its key."""
    key, request, certificate = (directory / f"old{end}" for end in ("-key.pem", ".csr", ".pem"))
    made: list[str | Path] = ["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old"]
    made += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        key,
        "-out",
        request,
    ]
    signed: list[str | Path] = ["x509", "-req", "-days", "-1", "-copy_extensions", "copy"]
    signed += ["-CA", files / "ca.pem", "-CAkey", files / "ca-key.pem"]
    signed += ["-in", request, "-out", certificate]
    for words in (made, signed):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30)
    return certificate, key


def test_a_client_tells_the_server_the_name_that_it_dials(files: Path) -> None:
    """A server that has certificates for several names chooses by it (SNI)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.pem", files / "server-key.pem")
    told: list[str | None] = []

    def choose(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> None:
        told.append(name)

    context.sni_callback = choose
    with socket.create_server(("127.0.0.1", 0)) as server, Client(tls=Tls(files / "ca.pem")) as one:

        def serve() -> None:
            for _ in range(2):
                with suppress(OSError), context.wrap_socket(server.accept()[0], server_side=True):
                    pass

        serving = Thread(target=serve)
        serving.start()
        for host in ("localhost", "127.0.0.1"):
            with pytest.raises(RmqError):
                one.request(f"{host}:{server.getsockname()[1]}", ROUTE, {"topic": "orders"})
        serving.join(10)
    # An address is no name: RFC 6066 leaves it out.
    assert told == ["localhost", None]


def test_clients_show_a_certificate_where_one_is_required(files: Path) -> None:
    with requiring(files) as server:
        known = Tls(files / "ca.pem", cert=files / "server.pem", key=files / "server-key.pem")
        with Client(tls=known) as client:
            assert client.request(server.address, ROUTE, {"topic": "no such"}).code == 17
        with Client(tls=Tls(files / "ca.pem")) as client, pytest.raises(RmqError):
            client.request(server.address, ROUTE, {"topic": "no such"})


def requiring(files: Path) -> NameServer:
    """Return a name server whose clients need a certificate; it has not started."""
    return enforcing(
        files,
        tls_server_need_client_auth="require",
        tls_server_auth_client=True,
        tls_server_trust_cert_path=str(files / "ca.pem"),
    )


def test_only_modern_versions_are_spoken(server: NameServer) -> None:
    assert peer_certificate(server.address)[0] == "TLSv1.3"
    for version, answer in ((TLS_1_2, HANDSHAKE), (TLS_1_1, ALERT)):
        record = bytearray(hello(most=ssl.TLSVersion.TLSv1_2))
        # Behind the head of the record and that of the message; nothing else names a version.
        record[9:11] = version
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), 5) as peer:
            peer.sendall(record)
            found = peer.recv(7)
        assert found[0] == answer
        if answer == ALERT:
            assert found[6] == PROTOCOL_VERSION


def test_a_session_is_never_negotiated_again(server: NameServer) -> None:
    # A busy machine may not get as far as to ask.
    answers = (renegotiated(server.address, seconds) for seconds in (0.5, 2, 8, 20))
    assert next(answer for answer in answers if answer is not None) is False
    assert peer_certificate(server.address)[0] == "TLSv1.3"
