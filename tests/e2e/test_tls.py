"""TLS over real sockets: our clients on our servers, in all modes, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import re
import socket
import ssl
import subprocess
import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pairs import Pair
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    Broker,
    ConfigError,
    Credentials,
    NameServer,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RmqError,
    SimpleConsumer,
    Tls,
    _core,
)
from pyrmq._client.security.effective import chosen_tls
from pyrmq.aio import Producer as AsyncProducer
from pyrmq.cli import main
from pyrmq.config import BrokerOptions, NameServerOptions
from pyrmq.remoting import Client
from pyrmq.server.load import load
from pyrmq.server.security.directory import make_secure, secure_values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUTE, BROKER_CONFIG = 105, 26


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "secure"
    make_secure(directory, ["broker.example"])
    return directory


@pytest.fixture(scope="module")
def secure(files: Path) -> Iterator[Pair]:
    cluster = Pair(files.parent, **secure_values(files))
    with Admin(name_server=cluster.address, credentials=admin(files)) as tool:
        tool.create_topic("orders", queues=4)
    yield cluster
    cluster.stop()


def admin(files: Path) -> Credentials:
    return Credentials.from_file(files / "admin.toml")


def app(files: Path) -> Credentials:
    return Credentials.from_file(files / "app.toml")


def test_a_pattern_is_looked_up_as_the_consumers_user_and_through_its_tls(
    secure: Pair, files: Path
) -> None:
    # A list of all topics is for administrators.
    with PullConsumer(
        group="patterns", name_server=secure.address, credentials=admin(files)
    ) as consumer:
        consumer.subscribe(re.compile("ord.*s"))
        assert {queue.topic for queue in consumer.assignment()} == {"orders"}


def test_every_client_works_through_tls_with_one_file(secure: Pair, files: Path) -> None:
    given: dict[str, Any] = {"name_server": secure.address, "credentials": app(files)}
    with Producer(**given) as producer, Producer(**given, vip_channel=True, group="vip") as vip:
        producer.send("orders", b"one")
        vip.send("orders", b"by the fast port")
        producer.send_batch("orders", [b"%d" % number for number in range(10)])
        futures = [producer.send_async("orders", b"many" * 2000) for _ in range(500)]
        assert all(future.result(30) for future in futures)
    with PullConsumer(group="pull", **given) as consumer:
        consumer.subscribe("orders")
        found = 0
        while found < 512:
            found += len(consumer.poll(timeout=30))
        assert found == 512
    with SimpleConsumer(group="simple", **given) as simple:
        simple.subscribe("orders")
        messages = simple.receive(wait=10)
        assert messages
        simple.ack(messages)
    seen, enough = [], Event()

    def listen(message: ReceivedMessage) -> None:
        seen.append(message)
        if len(seen) >= 512:
            enough.set()

    push = PushConsumer(group="push", **given)
    push.subscribe("orders", listen)
    with push:
        assert enough.wait(30)
    with Admin(name_server=secure.address, credentials=admin(files)) as tool:
        assert "orders" in tool.topics()
        assert {broker.name for broker in tool.cluster()["DefaultCluster"]} == {
            "broker1",
            "broker2",
        }


def test_the_asynchronous_producer_works_through_tls(secure: Pair, files: Path) -> None:
    async def send() -> str:
        async with AsyncProducer(name_server=secure.address, credentials=app(files)) as producer:
            return (await producer.send("orders", b"one")).broker

    assert asyncio.run(send()) in {"broker1", "broker2"}


def test_an_enforcing_server_serves_no_plain_client(secure: Pair) -> None:
    with Client() as client:
        for address in (secure.address, *(broker.address for broker in secure.brokers)):
            with pytest.raises(RmqError):
                client.request(address, ROUTE, {"topic": "orders"})
            # The fast port, too.
            host, port = address.split(":")
            if address != secure.address:
                with pytest.raises(RmqError):
                    client.request(f"{host}:{int(port) - 2}", BROKER_CONFIG)


@pytest.mark.parametrize(
    ("tls", "text"),
    [
        (("other/ca.pem", None), "authority that is not trusted"),
        (("secure/ca.pem", "elsewhere.example"), "for another host"),
    ],
    ids=["authority", "host"],
)
def test_a_server_that_is_not_trusted_gets_no_request(
    secure: Pair,
    files: Path,
    tls: tuple[str, str | None],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not (files.parent / "other").exists():
        make_secure(files.parent / "other")
    monkeypatch.chdir(files.parent)
    chosen = Tls(tls[0], server_name=tls[1])
    # A relative path is that of the directory in which the option was made.
    monkeypatch.chdir("/")
    with Client(tls=chosen) as client, pytest.raises(RmqError, match=text):
        client.request(secure.address, ROUTE, {"topic": "orders"})


def test_a_name_of_the_certificate_stands_for_the_host(secure: Pair, files: Path) -> None:
    tls = Tls(files / "ca.pem", server_name="broker.example")
    with Client(tls=tls, credentials=admin(files)) as client:
        assert client.request(secure.address, ROUTE, {"topic": "orders"}).code == 0


def test_without_checks_a_warning_says_so(
    secure: Pair, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "pyrmq.tls"),
        Client(tls=Tls(verify=False), credentials=admin(files)) as client,
    ):
        assert client.request(secure.address, ROUTE, {"topic": "orders"}).code == 0
    assert "anybody may be at the other end" in caplog.text


def test_a_permissive_cluster_of_a_test_certificate_serves_both(tmp_path: Path) -> None:
    cluster = Pair(
        tmp_path,
        tls_server_mode="permissive",
        tls_test_mode_enable=True,
        use_tls="true",
        tls_client_auth_server=False,
    )
    try:
        for tls in (None, Tls(verify=False)):
            with Producer(name_server=cluster.address, tls=tls) as producer:
                producer.send("TBW102", b"x")
    finally:
        cluster.stop()


def test_a_tls_client_gets_nothing_from_a_plain_server(tmp_path: Path, files: Path) -> None:
    cluster = Pair(tmp_path)
    try:
        with Client(tls=Tls(files / "ca.pem")) as client, pytest.raises(RmqError, match="TLS"):
            client.request(cluster.address, ROUTE, {"topic": "orders"})
        with Client() as client:
            assert client.request(cluster.address, ROUTE, {"topic": "TBW102"}).code == 0
    finally:
        cluster.stop()


def test_certificates_change_under_load_and_no_send_fails(tmp_path: Path) -> None:
    directory = tmp_path / "live"
    make_secure(directory)
    cluster = Pair(tmp_path, **secure_values(directory))
    stop, failed, sent = Event(), [], [0]
    first = app(directory)

    def load() -> None:
        with Producer(name_server=cluster.address, credentials=first, retries=0) as producer:
            while not stop.is_set():
                try:
                    producer.send("TBW102", b"x" * 500)
                    sent[0] += 1
                except RmqError as error:
                    failed.append(error)

    sender = Thread(target=load)
    sender.start()
    try:
        await_true(lambda: sent[0] > 20)
        make_secure(tmp_path / "next")
        for name in ("server-key.pem", "server.pem", "ca.pem"):
            (tmp_path / "next" / name).replace(directory / name)

        def is_new() -> bool:
            _, text = peer_certificate(cluster.address)
            return text == certificate(directory / "server.pem")

        await_true(is_new)
        before = sent[0]
        await_true(lambda: sent[0] > before + 20)
    finally:
        stop.set()
        sender.join()
        cluster.stop()
    assert failed == []


def peer_certificate(address: str) -> tuple[str, bytes]:
    """Perform a handshake by Python's own TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = address.split(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain) as link,
    ):
        return str(link.version()), link.getpeercert(binary_form=True) or b""


def certificate(path: Path) -> bytes:
    first = path.read_text().split("-----END CERTIFICATE-----")[0]
    return ssl.PEM_cert_to_DER_cert(first + "-----END CERTIFICATE-----\n")


def test_without_a_file_the_systems_authorities_count(secure: Pair, files: Path) -> None:
    """OpenSSL's variable names another list of the system's."""
    user = files.parent / "user-without-authority.toml"
    user.write_text((files / "app.toml").read_text().partition("[tls]")[0])
    user.chmod(0o600)
    command = [sys.executable, "-m", "pyrmq", "send", "-n", secure.address, "--tls"]
    command += ["--credentials", str(user), "orders", "by the system's authority"]
    for more, is_trusted in (({}, False), ({"SSL_CERT_FILE": str(files / "ca.pem")}, True)):
        done = subprocess.run(
            command,
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode == 0) == is_trusted, done.stderr
        assert ("not trusted" in done.stderr or "no list of trusted" in done.stderr) != is_trusted


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tls_server_mode": "strict"}, "must be one of disabled, permissive, enforcing"),
    ({"tls_server_mode": "enforcing"}, "the server has no certificate"),
    ({"tls_server_cert_path": "server.pem", "tls_server_key_path": "gone.pem"}, "gone.pem"),
    ({"tls_server_cert_path": "server.pem", "tls_server_key_path": "ca-key.pem"}, "not belong"),
    ({"tls_server_cert_path": "server.pem", "tls_server_key_path": "server.pem"}, "no private key"),
    ({"tls_test_mode_enable": True, "tls_server_cert_path": "server.pem"}, "remove one of them"),
    ({"tls_test_mode_enable": True, "tls_server_need_client_auth": "require"}, "set both or none"),
    (
        {
            "tls_test_mode_enable": True,
            "tls_server_need_client_auth": "optional",
            "tls_server_auth_client": True,
        },
        "trustCertPath",
    ),
    ({"tls_server_mode": "disabled", "use_tls": "true", "tls_client_cert_path": "x"}, "belong"),
    (
        {
            "tls_server_mode": "permissive",
            "tls_server_cert_path": "server.pem",
            "tls_server_key_path": "server-key.pem",
            "tls_server_need_client_auth": "require",
            "tls_server_auth_client": True,
            "tls_server_trust_cert_path": "ca.pem",
        },
        "client without TLS",
    ),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=[text for _, text in BAD])
def test_wrong_options_stop_the_start_before_a_port_opens(
    files: Path, options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    both: dict[str, Any] = {"listen_port": 0, "tls_server_mode": "enforcing", **options}
    with pytest.raises(ConfigError, match=text):
        NameServer(**both).start()


def test_the_file_of_tls_options_has_the_passwords(tmp_path: Path, files: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.server.mode=enforcing\ntls.server.certPath={files}/server.pem\n"
        f"tls.server.keyPath={files}/server-key.pem\ntls.enable=false\n"
    )
    conf = tmp_path / "namesrv.properties"
    conf.write_text(f"listenPort=0\nbindAddress=127.0.0.1\ntls.config.file={file}\n")
    with NameServer(load(NameServerOptions, conf)) as server:
        assert peer_certificate(server.address)[1] == certificate(files / "server.pem")
    file.write_text(file.read_text() + "tls.server.keyPassword=hush-hush\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        NameServer(load(NameServerOptions, conf)).start()
    file.chmod(0o600)
    # The key is not encrypted: the password is not used.
    with NameServer(load(NameServerOptions, conf)) as server:
        assert "hush-hush" not in repr(server.options) + str(server.properties())
    file.write_text("# ours\ntls.server.mode=\\\n  enforcing\nhush-hush\n")
    with pytest.raises(ConfigError, match="an unknown key in line 4") as raised:
        NameServer(load(NameServerOptions, conf)).start()
    assert "hush-hush" not in str(raised.value)
    file.write_text("tls.server.modes=enforcing\n")
    with pytest.raises(ConfigError, match=r"in line 1.*did you mean `tls\.server\.mode`"):
        NameServer(load(NameServerOptions, conf)).start()
    conf.write_text("tls.server.keyPassword=hush-hush\n")
    with pytest.raises(ConfigError, match=r"tls\.config\.file") as raised:
        load(BrokerOptions, conf)
    assert "hush-hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cert": "a.pem"}, "belong together"),
        ({"key_password": "x"}, "without `key`"),
        ({"trust": "a.pem", "verify": False}, "no effect"),
        ({"trust": ""}, "is empty"),
        ({"trust": 7}, "not a string"),
        ({"verify": None}, "true or false"),
        ({"verify": "no"}, "true or false"),
    ],
)
def test_wrong_options_of_a_client_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Tls(**given)


def test_a_missing_file_of_a_client_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem"):
        Producer(name_server="127.0.0.1:1", tls=Tls("/nowhere/ca.pem"))
    with pytest.raises(ConfigError, match=r"pyrmq\.Tls"):
        Producer(name_server="127.0.0.1:1", tls=True)  # type: ignore[arg-type]


def test_the_environment_turns_tls_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Tls.from_environment() is None
    monkeypatch.setenv("PYRMQ_TLS_CA", "/etc/ca.pem")
    assert Tls.from_environment() == Tls("/etc/ca.pem")
    monkeypatch.setenv("PYRMQ_TLS", "false")
    assert Tls.from_environment() is None
    monkeypatch.setenv("PYRMQ_TLS", "1")
    monkeypatch.setenv("PYRMQ_TLS_SERVER_NAME", "broker.example")
    assert repr(Tls.from_environment()) == "Tls(trust='/etc/ca.pem', server_name='broker.example')"
    monkeypatch.delenv("PYRMQ_TLS_CA")
    monkeypatch.delenv("PYRMQ_TLS")
    with pytest.raises(ConfigError, match="PYRMQ_TLS_SERVER_NAME have no effect without TLS"):
        Tls.from_environment()
    monkeypatch.setenv("PYRMQ_TLS", "perhaps")
    with pytest.raises(ConfigError, match="PYRMQ_TLS"):
        Tls.from_environment()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_password_in_the_environment_and_in_a_file_is_an_error(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "app.toml"
    file.touch(mode=0o600)
    file.write_text(
        'accessKey = "app"\nsecretKey = "s3cret-of-app"\n'
        '[tls]\ncert = "app.pem"\nkey = "app-key.pem"\nkeyPassword = "hush-of-file"\n'
    )
    credentials = Credentials.from_file(file) if by == "option" else None
    if by == "environment":
        monkeypatch.setenv("PYRMQ_CREDENTIALS", str(file))
    assert chosen_tls(credentials) is not None
    monkeypatch.setenv("PYRMQ_TLS_KEY_PASSWORD", "hush-of-variable")
    for switch in ("", "true"):
        monkeypatch.setenv("PYRMQ_TLS", switch)
        with pytest.raises(ConfigError, match="PYRMQ_TLS_KEY_PASSWORD and as") as raised:
            Producer(name_server="127.0.0.1:1", credentials=credentials)
        assert str(file) in str(raised.value)
        assert "hush" not in str(raised.value)
        assert str(raised.value).endswith("or give this client the option `tls`")
    # The option `tls` says which one counts: neither.
    assert chosen_tls(credentials, Tls(verify=False)) == Tls(verify=False)


def test_no_repr_shows_the_password_of_a_key() -> None:
    tls = Tls(cert="a", key="b", key_password="hush")
    assert "hush" not in repr(tls)
    with pytest.raises(TypeError, match="key_password"):
        pickle.dumps(tls)
    assert pickle.loads(pickle.dumps(Tls("ca.pem"))) == Tls("ca.pem")


def test_clients_with_equal_options_share_one_native_object(files: Path) -> None:
    from pyrmq._client.security.tls import native_tls

    shared = native_tls(Tls(files / "ca.pem"))
    assert native_tls(Tls(str(files / "ca.pem"))) is shared
    # A lock of the parent's may have been held at the fork.
    child = os.fork()
    if child == 0:
        os._exit(native_tls(Tls(files / "ca.pem")) is shared)
    assert os.waitpid(child, 0)[1] == 0


def test_a_secure_directory_is_private_and_never_overwritten(files: Path) -> None:
    assert files.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in files.iterdir()} == {0o600}
    with pytest.raises(ConfigError, match="not empty"):
        make_secure(files)
    with pytest.raises(ConfigError, match="pyrmq secure init"):
        secure_values(files.parent)
    with pytest.raises(ConfigError, match="certificate"):
        _core.make_certificates(["ümlaut"], 1)
    no_hosts = ("*.example", "broker:10911", "https:", "10.0.0.300", "[::1]", "a,b", "999999")
    for host in (
        *no_hosts,
        "evil.example\x00x",
        "a\nb",
        "a..b",
        "-a",
        "fe80::1%eth0",
        "a" * 64,
        "",
    ):
        with pytest.raises(ConfigError, match="for a certificate"):
            make_secure(files.parent / "never", [host])
    make_secure(files.parent / "named", ["broker_1", "b-1.example", "10.0.0.3", "fe80::1"])
    with pytest.raises(ConfigError, match="1 to 36500"):
        make_secure(files.parent / "never", days=9_999_999)
    (files.parent / "open").mkdir(mode=0o755)
    make_secure(files.parent / "open")
    assert (files.parent / "open").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("PYRMQ_BROKER_TLS_SERVER_MODE", "permissive", r"tls\.server\.mode"),
        ("PYRMQ_BROKER_AUTHENTICATION_ENABLED", "false", "authenticationEnabled"),
        ("PYRMQ_BROKER_USE_TLS", "false", "useTLS"),
    ],
)
def test_nothing_undoes_secure_silently(
    variable: str,
    value: str,
    key: str,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["broker", "--secure", str(files), "--print-config"]
    assert main(command) == 0
    monkeypatch.setenv(variable, value)
    assert main(command) != 0
    assert re.search(f"--secure.*{key}.*contradict", capsys.readouterr().err)


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_key_that_others_may_read_is_warned_about(
    files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes((files / "server-key.pem").read_bytes())
    key.chmod(mode)
    options = NameServerOptions(
        listen_port=0,
        tls_server_mode="enforcing",
        tls_server_cert_path=str(files / "server.pem"),
        tls_server_key_path=str(key),
    )
    with caplog.at_level(logging.WARNING, "pyrmq"):
        NameServer(options).start().stop(0)
    assert f"chmod 600 {key}" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pyrmq"):
        Client(tls=Tls(files / "ca.pem", cert=files / "server.pem", key=key)).close()
    assert f"chmod 600 {key}" in caplog.text


def test_three_commands_make_and_use_a_secure_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyrmq"]
    directory = tmp_path / "secure"
    subprocess.run([*command, "secure", "init", str(directory)], check=True, timeout=30)
    server = subprocess.Popen(
        [
            *(*command, "server", "--secure", str(directory), "--json", "--listen-port", "0"),
            *("--name-server-port", "0", "--store", str(tmp_path / "store")),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["name_server"]
        to = ["-n", address, "--credentials", str(directory / "app.toml")]
        subprocess.run([*command, "send", *to, "orders", "two coffees"], check=True, timeout=30)
        listed = subprocess.run(
            [*command, "topic", "list", "-n", address],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            env={**os.environ, "PYRMQ_CREDENTIALS": str(directory / "admin.toml")},
        )
        assert "orders" in listed.stdout
        refused = subprocess.run(
            [*command, "topic", "list", "-n", address], capture_output=True, timeout=30, check=False
        )
        assert refused.returncode == 1
        server.terminate()


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_open_server_on_an_address_of_the_network_warns(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, *, encrypted: bool
) -> None:
    mode = "enforcing" if encrypted else "disabled"
    options: dict[str, Any] = {
        "listen_port": 0,
        "tls_server_mode": mode,
        "tls_test_mode_enable": encrypted,
    }
    with caplog.at_level(logging.WARNING, "pyrmq"):
        NameServer(bind_address="127.0.0.1", **options).start().stop(0)
        store: dict[str, Any] = {
            "store_path_root_dir": tmp_path,
            "mapped_file_size_commit_log": 64 << 20,
        }
        Broker(bind_address="127.0.0.1", **store, **options).start().stop(0)
        assert "checks no users" not in caplog.text
        NameServer(bind_address="0.0.0.0", **options).start().stop(0)
        Broker(**store, **options).start().stop(0)
    assert caplog.text.count("all of them may do everything. Set authenticationEnabled") == 2
