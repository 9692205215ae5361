"""Rows of TLS and of signed requests: our secured server compared with our plain one."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benches.e2e.servers import ours
from benches.row import Row
from benches.usage import cpu_seconds, resident_mib
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.e2e.servers import Side

HANDSHAKE_S = 3
HANDSHAKE_CLIENTS = 4
"""One client at a time would measure how long a handshake takes, not how many the server does."""
IDLE = 2000
"""Connections whose memory is measured."""
_KEYS = {
    "RSA-2048": ["-newkey", "rsa:2048"],
    "ECDSA P-256": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
}
_HANDSHAKES = (
    ("RSA-2048", "-new", ">= 500"),
    ("ECDSA P-256", "-new", ">= 2,000"),
    ("ECDSA P-256", "-reuse", ">= 3,000"),
)


@contextmanager
def tls() -> Iterator[Side]:
    """Run our server with TLS alone and a certificate of `pyrmq secure init`."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        files = Path(home) / "secure"
        make_secure(files)
        names = ("server.pem", "server-key.pem", "ca.pem")
        with _with_certificate(*(files / name for name in names)) as server:
            yield server


@contextmanager
def signed() -> Iterator[Side]:
    """Run our server with users and policies, without TLS."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        files = Path(home) / "secure"
        make_secure(files)
        # Of the credentials files, the part about TLS comes last.
        app = files / "app-plain.toml"
        app.write_text((files / "app.toml").read_text().split("[tls]")[0])
        app.chmod(0o600)
        options = {
            "authentication_enabled": "true",
            "authorization_enabled": "true",
            "auth_config_path": files / "users.json",
            "inner_client_credentials_path": files / "server.toml",
            "use_tls": "false",
        }
        environment = {"PYRMQ_CREDENTIALS": str(app)}
        with ours(name="signed", options=options, environment=environment) as (side, _):
            yield side


def handshake_rows(rounds: int) -> Iterator[Row]:
    """Measure handshakes a second with OpenSSL's clients, and idle connections."""
    openssl = shutil.which("openssl")
    if not openssl:
        print("left out: handshakes: there is no `openssl`", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        for kind, how, target in _HANDSHAKES if openssl else ():
            what = "resumed handshakes" if how == "-reuse" else "full handshakes"
            row = Row(
                name=f"handshakes-{kind.split()[0].lower()}{how.replace('-new', '')}",
                what=f"{what} over TLS 1.2, {kind}, {HANDSHAKE_CLIENTS} clients",
                unit="a second",
                target=target,
            )
            certificate, key = _certificate(Path(home), kind)
            with _with_certificate(certificate, key) as side:
                for _ in range(rounds):
                    before = cpu_seconds(side.broker_pid)
                    rate = _handshakes(side.name_server, how)
                    spent = cpu_seconds(side.broker_pid) - before
                    # The server's share says which of the two sides limits the rate.
                    cpu_us = spent * 1e6 / (rate * HANDSHAKE_S)
                    row.add("ours", rate, cpu_us, server=side.broker_pid)
            yield row
    memory = Row(
        name="tls-idle",
        what=f"memory of an idle TLS connection, of {IDLE:,}",
        unit="KiB",
        target="<= 40 KiB",
        less_is_more=True,
    )
    for _ in range(min(rounds, 3)):
        with tls() as side:
            memory.add("ours", _idle_kib(side))
    yield memory


@contextmanager
def _with_certificate(
    certificate: Path, key: Path, authority: Path | None = None
) -> Iterator[Side]:
    options: dict[str, object] = {
        "tls_server_mode": "enforcing",
        "tls_server_cert_path": certificate,
        "tls_server_key_path": key,
    }
    environment = {"PYRMQ_TLS": "true"}
    if authority is None:
        options["tls_client_auth_server"] = "false"
    else:
        options["tls_client_trust_cert_path"] = authority
        environment["PYRMQ_TLS_CA"] = str(authority)
    with ours(name="tls", options=options, environment=environment) as (side, _):
        yield side


def _certificate(home: Path, kind: str) -> tuple[Path, Path]:
    name = kind.split()[0]
    certificate, key = home / f"{name}.pem", home / f"{name}-key.pem"
    if not key.exists():
        command = ["openssl", "req", "-x509", *_KEYS[kind], "-nodes", "-days", "2"]
        command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        key.chmod(0o600)
    return certificate, key


def _handshakes(address: str, how: str) -> float:
    """Return handshakes a second of the wall clock; OpenSSL's other figure is of its own CPU."""
    command = ["openssl", "s_time", "-connect", address, how, "-time", str(HANDSHAKE_S), "-tls1_2"]
    clients = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(HANDSHAKE_CLIENTS)
    ]
    rate = 0.0
    for client in clients:
        out, errors = client.communicate(timeout=60)
        found = re.search(r"(\d+) connections in (\d+) real seconds", out)
        if found is None:
            raise RuntimeError(f"openssl s_time printed no figure: {out!r} {errors!r}")
        rate += int(found[1]) / int(found[2])
    return rate


def _idle_kib(side: Side) -> float:
    host, _, port = side.name_server.rpartition(":")
    context = ssl.create_default_context(cafile=side.environment["PYRMQ_TLS_CA"])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:

        def connect(count: int) -> None:
            for _ in range(count):
                plain = socket.create_connection((host, int(port)), timeout=10)
                stack.enter_context(context.wrap_socket(plain, server_hostname=host))

        # The first ones grow tables and arenas that all share.
        connect(IDLE // 10)
        time.sleep(1.0)
        before = resident_mib(side.broker_pid)
        connect(IDLE)
        time.sleep(1.0)
        return (resident_mib(side.broker_pid) - before) * 1024 / IDLE
