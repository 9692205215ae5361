"""The metrics port over HTTPS: certificates of both sides, reload, peers that break off."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from http.client import HTTPSConnection
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import await_true
from tests.interop.jvm import free_port

from pyrmq import Broker, ConfigError, NameServer, RmqError
from pyrmq.broker.processor.status import report
from pyrmq.cli.broker.status import out_of_date
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from pathlib import Path


def server(files: Path, port: int, **options: Any) -> NameServer:  # noqa: ANN401 - of any kind
    return NameServer(
        listen_port=0,
        bind_address="127.0.0.1",
        metrics_port=port,
        tls_metrics_enable=True,
        tls_server_cert_path=str(files / "server.pem"),
        tls_server_key_path=str(files / "server-key.pem"),
        **options,
    )


def get(port: int, trust: Path, own: tuple[Path, Path] | None = None) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(trust))
    if own is not None:
        context.load_cert_chain(*own)
    link = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        link.connect()
        assert isinstance(link.sock, ssl.SSLSocket)
        shown = link.sock.getpeercert(binary_form=True)
        link.request("GET", "/metrics")
        answer = link.getresponse()
        assert answer.status == 200, answer.read()
        assert b"pyrmq_" in answer.read()
        return answer.status, shown or b""
    finally:
        link.close()


def test_figures_come_by_https_alone_and_a_silent_peer_delays_nobody(tmp_path: Path) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    with server(files, port), socket.create_connection(("127.0.0.1", port)):
        get(port, files / "ca.pem")
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"pyrmq_" not in plain.recv(65_536)
        get(port, files / "ca.pem")


def test_a_changed_certificate_is_shown_and_a_broken_one_never(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    make_secure(tmp_path / "next")
    with server(files, port):
        _, first = get(port, files / "ca.pem")
        (files / "server.pem").write_text("no certificate")
        assert get(port, files / "ca.pem")[1] == first
        assert "stays in force" in caplog.text
        for name in ("server-key.pem", "server.pem"):
            (tmp_path / "next" / name).replace(files / name)
        assert get(port, tmp_path / "next" / "ca.pem")[1] != first


def test_a_file_that_becomes_readable_is_read_and_the_failure_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    make_secure(tmp_path / "next")
    with server(files, port):
        _, first = get(port, files / "ca.pem")
        (tmp_path / "next" / "server-key.pem").replace(files / "server-key.pem")
        file = files / "server.pem"
        file.write_text("no certificate")
        before = file.stat()
        for _ in range(2):
            assert get(port, files / "ca.pem")[1] == first
        assert caplog.text.count("stays in force") == 1
        # What a change of the mode leaves as it was.
        file.write_bytes((tmp_path / "next" / "server.pem").read_bytes())
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_ino == before.st_ino
        assert get(port, tmp_path / "next" / "ca.pem")[1] != first
    assert caplog.text.count("stays in force") == 1


def test_clients_show_a_certificate_where_one_is_required(tmp_path: Path) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    options = {
        "tls_server_mode": "enforcing",
        "tls_server_need_client_auth": "require",
        "tls_server_auth_client": True,
        "tls_server_trust_cert_path": str(files / "ca.pem"),
        "tls_client_trust_cert_path": str(files / "ca.pem"),
    }
    with server(files, port, **options):
        get(port, files / "ca.pem", (files / "server.pem", files / "server-key.pem"))
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|EOF"):
            get(port, files / "ca.pem")


def revoking(files: Path, name: str, until: str = "20240201000000Z") -> str:
    """A list of nothing, or of the certificate with this file name; it is out of date."""
    serial = openssl(files, "x509", "-in", name, "-noout", "-serial") if name else ""
    row = f"R\t350101000000Z\t240101000000Z\t{serial.strip().partition('=')[2]}\tunknown\t/CN=x\n"
    (files / "index.txt").write_text(row if name else "")
    (files / "crlnumber").write_text("01")
    (files / "ca.cnf").write_text(
        "[ca]\ndefault_ca = own\n[own]\ndatabase = index.txt\ncrlnumber = crlnumber\n"
        "default_md = sha256\ncrl_extensions = more\n[more]\nauthorityKeyIdentifier = keyid\n"
    )
    dates = ("-crl_lastupdate", "20240101000000Z", "-crl_nextupdate", until)
    signer = ("-cert", "ca.pem", "-keyfile", "ca-key.pem", "-config", "ca.cnf")
    return openssl(files, "ca", "-gencrl", *signer, *dates)


def openssl(files: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("openssl", *arguments), cwd=files, check=True, capture_output=True, text=True
    )
    return done.stdout


def checking(files: Path, revoked: Path) -> dict[str, Any]:
    """Options of a server whose clients need a certificate that is not in a list."""
    return {
        "tls_server_mode": "enforcing",
        "tls_server_need_client_auth": "require",
        "tls_server_auth_client": True,
        "tls_server_trust_cert_path": str(files / "ca.pem"),
        "tls_server_crl_path": str(revoked),
        "tls_client_trust_cert_path": str(files / "ca.pem"),
    }


def test_a_list_that_is_out_of_date_refuses_whom_it_names_and_nobody_else(tmp_path: Path) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    revoked = files / "revoked.pem"
    revoked.write_text(revoking(files, ""))
    options = checking(files, revoked)
    own = (files / "server.pem", files / "server-key.pem")
    with server(files, port, **options) as running:
        get(port, files / "ca.pem", own)
        assert running.health()["revoked_certificates"] == {
            "next_update_ms": 1_706_745_600_000,
            "out_of_date": True,
        }
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|EOF"):
            get(port, files / "ca.pem")
        revoked.write_text(revoking(files, "server.pem"))

        def is_refused() -> bool:
            try:
                get(port, files / "ca.pem", own)
            except OSError as error:
                return "closed" in str(error) or "reset" in str(error)
            return False

        await_true(is_refused)


def test_a_broker_shows_that_its_list_is_out_of_date(tmp_path: Path) -> None:
    files = tmp_path / "secure"
    make_secure(files)
    revoked = files / "revoked.pem"
    revoked.write_text(revoking(files, ""))
    broker = Broker(
        listen_port=0,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        store_path_root_dir=str(tmp_path / "store"),
        tls_server_cert_path=str(files / "server.pem"),
        tls_server_key_path=str(files / "server-key.pem"),
        **checking(files, revoked),
    )
    with broker:
        state = report(broker)
        assert state["revoked_certificates"]["out_of_date"]
        assert "later revocations do not count" in str(out_of_date(state))
        figures = {one.name: one.rows for one in broker.figures()}
        assert figures["pyrmq_broker_revocation_list_next_update_seconds"] == [((), 1_706_745_600)]
        # The authority has published the next one.
        later = revoking(files, "", until="20990101000000Z")
        revoked.write_text(later)
        await_true(lambda: not report(broker)["revoked_certificates"]["out_of_date"])
        assert out_of_date(report(broker)) is None


def test_a_port_without_a_certificate_or_shared_by_unlike_servers_is_refused(
    tmp_path: Path,
) -> None:
    files, port = tmp_path / "secure", free_port()
    make_secure(files)
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath"):
        NameServer(
            listen_port=0, bind_address="127.0.0.1", metrics_port=port, tls_metrics_enable=True
        ).start()
    with server(files, port):
        plain = NameServer(listen_port=0, bind_address="127.0.0.1", metrics_port=port)
        with pytest.raises(RmqError, match=r"differ in `tls\.metrics\.enable`"):
            plain.start()
    await_true(lambda: not any(one.name == "pyrmq-metrics" for one in threading.enumerate()))
