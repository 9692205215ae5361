"""TLS and users together: Java's clients on our servers, our clients on the real ones."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, Credentials, Producer, PullConsumer, RmqError, Tls
from pyrmq.errors import PermissionDenied
from pyrmq.remoting import Client
from pyrmq.server.security.directory import make_secure
from tests.e2e.wire import await_true
from tests.interop import artifacts
from tests.interop.driver import Driver, DriverError
from tests.interop.jvm import temporary_directory
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker, JavaNameServer
from tests.interop.test_auth import ROOT, add_user, java_properties
from tests.interop.test_plain_acl import COOK_SECRET, KEEPER, add_accounts, use_account
from tests.interop.test_tls import ROUTE, VERSION, TlsDriver, flags, properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(240)
NO_PERMISSION, NO_ROUTE = 16, 10005


@pytest.fixture(scope="module")
def files() -> Path:
    directory = temporary_directory("secured") / "secure"
    make_secure(directory)
    return directory


@pytest.fixture(scope="module")
def ours(files: Path) -> Iterator[tuple[str, str]]:
    """Our servers with TLS alone and users: both addresses."""
    options = properties(files) | {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authConfigPath": files / "users.json",
        "innerClientCredentialsPath": files / "server.toml",
        # Strangers try again and again here.
        "failedLoginMaxDelay": 0,
    }
    with (
        OurNameServer(properties=options) as names,
        OurBroker(names.address, properties=options) as broker,
    ):
        with Admin(name_server=names.address, credentials=user(files, "admin")) as admin:
            await_true(admin.cluster, seconds=30)
            admin.create_topic("java", queues=4)
        yield names.address, f"127.0.0.1:{broker.port}"


def user(files: Path, name: str) -> Credentials:
    """Return the credentials of a user; their file names the authority."""
    return Credentials.from_file(files / f"{name}.toml")


def keys(files: Path, name: str) -> dict[str, str]:
    """Return access and secret key of a user."""
    given = tomllib.loads((files / f"{name}.toml").read_text())
    return {key: given[key] for key in ("accessKey", "secretKey")}


@pytest.mark.parametrize("release", [VERSION, pytest.param("4.9.7", marks=pytest.mark.nightly)])
def test_a_java_client_sends_and_receives_in_a_users_name_through_tls(
    release: str, ours: tuple[str, str], files: Path
) -> None:
    artifacts.require_java()
    names, _ = ours
    app: dict[str, Any] = {"namesrv": names, **keys(files, "app")}
    with TlsDriver(files, release) as driver:
        group = f"kitchen-{release.replace('.', '-')}"
        driver.call("push.start", id="consumer", group=group, topic="java", **app)
        driver.call("producer.start", id="producer", group="any", retries=0, **app)
        driver.call("producer.send", id="producer", topic="java", count=5)
        got = driver.call("push.messages", id="consumer", count=5, timeout=30_000)["messages"]
        assert len(got) >= 5, got
        strangers = {
            "thief": app | {"secretKey": "not-the-secret"},
            "nobody": app | {"accessKey": "nobody", "secretKey": "not-the-secret"},
            "unsigned": {"namesrv": names},
        }
        for name, given in strangers.items():
            driver.call("producer.start", id=name, group=f"of-{name}", retries=0, **given)
            with pytest.raises(DriverError) as raised:
                driver.call("producer.send", id=name, topic="java", count=1)
            # The name server refuses the route already, and the client then says that it has none.
            assert raised.value.code in {NO_PERMISSION, NO_ROUTE}, raised.value


@pytest.mark.interop_all
@pytest.mark.parametrize("way", ["push-concurrent", "push-orderly"])
def test_a_go_consumer_reads_in_a_users_name_through_tls(
    way: str, ours: tuple[str, str], files: Path
) -> None:
    names, topic = ours[0], f"go-{way}"
    bodies = [f"m-{number}" for number in range(50)]
    with Admin(name_server=names, credentials=user(files, "admin")) as admin:
        admin.create_topic(topic)
    with Producer(name_server=names, credentials=user(files, "app")) as producer:
        producer.send_batch(topic, [body.encode() for body in bodies])
    done = go(way, names, topic, len(bodies), keys(files, "app"))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {row["body"] for row in rows} >= set(bodies)


def go(
    way: str, names: str, topic: str, count: int, user: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the Go client through TLS in a user's name."""
    secrets = {"ACCESS_KEY": user["accessKey"], "SECRET_KEY": user["secretKey"]}
    return subprocess.run(
        [str(artifacts.go_program(tls=True)), way, names, topic, topic, str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **secrets},
    )


@pytest.mark.interop_all
def test_a_go_producer_sends_in_a_users_name_through_tls(
    ours: tuple[str, str], files: Path
) -> None:
    names, topic, count = ours[0], "go-produced", 50
    with Admin(name_server=names, credentials=user(files, "admin")) as admin:
        admin.create_topic(topic)
    app = keys(files, "app")
    done = go("produce", names, topic, count, app)
    assert done.returncode == 0, done.stderr
    with PullConsumer(name_server=names, group="go-read", credentials=user(files, "app")) as reader:
        reader.subscribe(topic)
        found: list[str] = []
        while len(found) < count:
            found += [message.body.decode() for message in reader.poll(timeout=30)]
    assert sorted(found) == sorted(f"m-{number}" for number in range(count))
    for wrong in ({"secretKey": "not-the-secret"}, {"accessKey": "nobody"}):
        done = go("produce", names, topic, 1, app | wrong)
        assert done.returncode == 1, done.stdout
        assert not done.stdout


@pytest.mark.nightly
def test_a_java_client_without_tls_or_of_another_authority_gets_nothing(
    ours: tuple[str, str], files: Path
) -> None:
    artifacts.require_java()
    names, _ = ours
    given: dict[str, Any] = {"namesrv": names, "group": "any", "retries": 0}
    given |= keys(files, "app")
    if not (files.parent / "other").exists():
        make_secure(files.parent / "other")
    for driver in (Driver(VERSION), TlsDriver(files.parent / "other")):
        with driver:
            driver.call("producer.start", id="producer", **given)
            with pytest.raises(DriverError):
                driver.call("producer.send", id="producer", topic="java", count=1, timeout=3000)


@pytest.mark.nightly
def test_a_java_client_of_4x_works_for_an_account_through_tls(files: Path) -> None:
    artifacts.require_java()
    home = add_accounts(temporary_directory("secured-accounts"))
    accounts = properties(files) | {"aclEnable": "true", "rocketmqHome": home}
    with (
        OurNameServer(properties=properties(files)) as names,
        OurBroker(names.address, properties=accounts),
        TlsDriver(files, "4.9.7") as driver,
    ):
        tls = Tls(files / "ca.pem")
        with Admin(name_server=names.address, credentials=KEEPER, tls=tls) as admin:
            await_true(admin.cluster, seconds=30)
            for topic in ("orders", "bills"):
                admin.create_topic(topic)
        account = {"namesrv": names.address, "accessKey": "kitchen7", "secretKey": COOK_SECRET}
        driver.call("push.start", id="consumer", group="kitchen", topic="orders", **account)
        driver.call("producer.start", id="producer", group="any", retries=0, **account)
        driver.call("producer.send", id="producer", topic="orders", count=5)
        got = driver.call("push.messages", id="consumer", count=5, timeout=30_000)["messages"]
        assert len(got) >= 5, got
        with pytest.raises(DriverError) as raised:
            driver.call("producer.send", id="producer", topic="bills", count=1)
        assert raised.value.code == 1


@pytest.mark.nightly
def test_our_clients_use_the_real_servers_of_4x_for_an_account_through_tls(files: Path) -> None:
    artifacts.require_java()
    names = JavaNameServer("4.9.7")
    names._jvm += flags(files, server=True)
    with names:
        broker = JavaBroker("4.9.7", names.address, properties={"aclEnable": "true"})
        broker._jvm += flags(files, server=True)
        add_accounts(broker.work_dir)
        with broker, Client(credentials=KEEPER) as plain:
            use_account(names.address, Tls(files / "ca.pem"))
            for address in (names.address, broker.address):
                with pytest.raises(RmqError):
                    plain.request(address, ROUTE, {"topic": "orders"})


@pytest.mark.nightly
def test_our_clients_use_the_real_servers_in_a_users_name_through_tls(files: Path) -> None:
    artifacts.require_java()
    names = JavaNameServer(VERSION)
    names._jvm += flags(files, server=True)
    with names:
        broker = JavaBroker(VERSION, names.address, properties=java_properties())
        broker._jvm += flags(files, server=True)
        tls = Tls(files / "ca.pem")
        with broker, Admin(name_server=names.address, credentials=ROOT, tls=tls) as admin:
            await_true(admin.cluster, seconds=60)
            admin.create_topic("orders")
            admin.create_topic("other")
            entries = [
                {"resource": "Topic:orders", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
                {"resource": "Group:kitchen", "actions": ["Sub", "Get"], "decision": "Allow"},
            ]
            cook = add_user(broker.address, "cook", entries, tls)
            given: dict[str, Any] = {"name_server": names.address, "tls": tls}
            with Producer(credentials=cook, retries=0, **given) as producer:
                for number in range(20):
                    producer.send("orders", f"{number}", keys="k", tags="t")
                producer.send_batch("orders", [b"1", b"2", b"3"])
                with pytest.raises(PermissionDenied):
                    producer.send("other", b"x")
            for wrong in (Credentials("cook", "not-the-secret"), None):
                with (
                    Producer(credentials=wrong, retries=0, **given) as stranger,
                    pytest.raises(PermissionDenied),
                ):
                    stranger.send("orders", b"x")
            with PullConsumer(group="kitchen", credentials=cook, **given) as consumer:
                consumer.subscribe("orders")
                found = 0
                while found < 23:
                    found += len(consumer.poll(timeout=30))
                consumer.commit()
            with Client(credentials=cook) as plain, pytest.raises(RmqError):
                plain.request(broker.address, ROUTE, {"topic": "orders"})
