"""Rows of the Java client with TLS and with users, on our broker and on Apache's with the same."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.driver import Driver
from tests.interop.rocketmq import JavaBroker, JavaNameServer

from benches.e2e import rows
from benches.e2e.servers import JAVA_STORE, VERSION, Side, ours
from benches.row import Row
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

USER, PASSWORD = "root", "password-of-the-benchmark"
NAMES = ("java-tls", "java-auth")
"""What `--rows` takes."""
_SENDS = (("64 threads, 128 B", 64, 1), ("batches of 32, 8 threads", 8, 32))
_PARTS = "org.apache.rocketmq.auth"


def java_security_rows(chosen: set[str], rounds: int, seconds: int) -> Iterator[Row]:
    """Run both loads with TLS, and both with signed and checked requests."""
    none: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        for name, sides, flags, account in (
            ("java-tls", _tls, _client_flags(Path(home) / "secure"), none),
            ("java-auth", _auth, [], {"accessKey": USER, "secretKey": PASSWORD}),
        ):
            if name not in chosen:
                continue
            with ExitStack() as stack:
                running = stack.enter_context(sides(Path(home)))
                driver = Driver(VERSION, quick=False, heap_mb=1024)
                driver._jvm += flags
                stack.enter_context(driver)
                for text, threads, batch in _SENDS:
                    what = "TLS" if name == "java-tls" else "users and policies"
                    row = Row(
                        what=f"Java client with {what}, {text}", unit="msg/s", target=">= 1.6 times"
                    )
                    yield rows.java_sends(
                        running,
                        driver,
                        rounds=rounds,
                        seconds=seconds,
                        threads=threads,
                        batch=batch,
                        row=row,
                        account=account,
                    )


@contextmanager
def _tls(home: Path) -> Iterator[list[Side]]:
    files = home / "secure"
    make_secure(files)
    server = {
        "tls_server_mode": "enforcing",
        "tls_server_cert_path": files / "server.pem",
        "tls_server_key_path": files / "server-key.pem",
        "tls_client_trust_cert_path": files / "ca.pem",
    }
    with ExitStack() as stack:
        own, _ = stack.enter_context(ours(options=server))
        flags = [
            *_client_flags(files),
            "-Dtls.server.mode=enforcing",
            f"-Dtls.server.certPath={files / 'server.pem'}",
            f"-Dtls.server.keyPath={files / 'server-key.pem'}",
        ]
        yield [own, stack.enter_context(_apache(flags, {}))]


@contextmanager
def _auth(home: Path) -> Iterator[list[Side]]:
    users = [{"username": USER, "password": PASSWORD, "userType": "Super"}]
    account = {"accessKey": USER, "secretKey": PASSWORD}
    options = {
        "authentication_enabled": "true",
        "authorization_enabled": "true",
        "auth_config_path": _private(home / "users.json", {"users": users}),
        "inner_client_credentials_path": _private(home / "root.json", account),
    }
    provider = f"{_PARTS}.authentication.provider.LocalAuthenticationMetadataProvider"
    properties = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProvider": f"{_PARTS}.authentication.provider.DefaultAuthenticationProvider",
        "authorizationProvider": f"{_PARTS}.authorization.provider.DefaultAuthorizationProvider",
        "authenticationMetadataProvider": provider,
        "authorizationMetadataProvider": provider.replace("uthentication", "uthorization"),
        "initAuthenticationUser": _line({"username": USER, "password": PASSWORD}),
        "innerClientAuthenticationCredentials": _line(account),
    }
    with ExitStack() as stack:
        own, _ = stack.enter_context(ours(options=options))
        yield [own, stack.enter_context(_apache([], properties))]


@contextmanager
def _apache(flags: Sequence[str], properties: Mapping[str, object]) -> Iterator[Side]:
    names = JavaNameServer(VERSION, quick=False)
    names._jvm += flags
    with names:
        broker = JavaBroker(
            VERSION,
            names.address,
            quick=False,
            heap_mb=1024,
            properties={**JAVA_STORE, **properties},
        )
        broker._jvm += flags
        with broker:
            yield Side(name="apache", name_server=names.address, broker_pid=broker.pid)


def _client_flags(files: Path) -> list[str]:
    return [
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={files / 'ca.pem'}",
    ]


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _private(path: Path, value: Any) -> Path:  # noqa: ANN401 - JSON
    path.touch(mode=0o600)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path
