"""Accounts of 4.x (ACL 1.0) over real sockets: who gets in, and what changes the files."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import await_true

from pyrmq import Admin, Broker, ConfigError, Credentials, NameServer, Producer, PullConsumer
from pyrmq.codes import RequestCode
from pyrmq.errors import BrokerError
from pyrmq.remoting import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq.remoting import Command

KEEPER = Credentials("keeper7", "keeper-secret-4d1f")
COOK = Credentials("kitchen7", "kitchen-secret-83a0")
ACCOUNTS = """\
globalWhiteRemoteAddresses:
  - 198.51.100.*
accounts:
  - accessKey: keeper7
    secretKey: keeper-secret-4d1f
    admin: true
  - accessKey: kitchen7
    secretKey: kitchen-secret-83a0
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB|SUB, bills=SUB]
    groupPerms: [kitchen=SUB]
    owner: team a
"""
REFUSED = "org.apache.rocketmq.acl.common.AclException: "
SYSTEM_ERROR, CHANGE_FAILED, DELETE_FAILED, WHITE_FAILED = 1, 209, 210, 211
SEND: dict[str, Any] = {"a": "g", "b": "orders", "c": "TBW102", "d": 4} | dict.fromkeys("efgh", 0)


def home(directory: Path, text: str = ACCOUNTS) -> Path:
    """Make a home directory with the main file."""
    (directory / "conf").mkdir(parents=True)
    write(directory / "conf" / "plain_acl.yml", text)
    return directory


def write(path: Path, text: str) -> Path:
    """Write a file of mode 0600."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


class Guarded:
    """A name server, and two brokers with accounts of their own."""

    def __init__(self, directory: Path) -> None:
        self.homes = [home(directory / f"home{at}") for at in (1, 2)]
        self.name_server = NameServer(listen_port=0, bind_address="127.0.0.1").start()
        self.address = self.name_server.address
        self.brokers = [
            Broker(
                listen_port=0,
                broker_name=f"broker{at}",
                bind_address="127.0.0.1",
                broker_ip1="127.0.0.1",
                namesrv_addr=self.address,
                store_path_root_dir=str(directory / f"store{at}"),
                mapped_file_size_commit_log=64 << 20,
                acl_enable=True,
                rocketmq_home=str(self.homes[at - 1]),
            )
            for at in (1, 2)
        ]
        for broker in self.brokers:
            broker.start().await_registration()

    def main_file(self, at: int) -> Path:
        """The main file of a broker."""
        return self.homes[at] / "conf" / "plain_acl.yml"

    def ask(
        self, at: int, code: int, fields: dict[str, Any], credentials: Credentials | None = KEEPER
    ) -> Command:
        """Ask a broker."""
        with Client(credentials=credentials) as client:
            return client.request(self.brokers[at].address, code, fields, b"body")

    def sends(self, at: int, credentials: Credentials | None) -> bool:
        """Whether somebody may send to the topic `orders` of a broker."""
        return self.ask(at, RequestCode.SEND_MESSAGE_V2, SEND, credentials).code == 0

    def stop(self) -> None:
        """Stop all of them at once."""
        for broker in self.brokers:
            broker.stop(0)
        self.name_server.stop(0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    running = Guarded(tmp_path_factory.mktemp("guarded"))
    with Admin(name_server=running.address, credentials=KEEPER) as admin:
        for topic in ("orders", "bills", "secret"):
            admin.create_topic(topic)
    yield running
    running.stop()


def test_an_account_does_what_its_permissions_allow(guarded: Guarded) -> None:
    servers: dict[str, Any] = {"name_server": guarded.address, "credentials": COOK}
    with Producer(**servers) as producer:
        result = producer.send("orders", b"one", keys='ü€"\\k', tags="a")
        producer.send_batch("orders", [b"%d" % number for number in range(10)])
        futures = [producer.send_async("orders", b"many") for _ in range(300)]
        assert all(future.result(30) for future in futures)
    with PullConsumer(**servers, group="kitchen") as consumer:
        consumer.subscribe("orders")
        found = 0
        while found < 311:
            found += len(consumer.poll(timeout=30))
        consumer.commit()
    assert found == 311
    with Admin(**servers) as admin:
        assert admin.message(result.message_id, topic="orders").body == b"one"


def test_nobody_does_more(guarded: Guarded) -> None:
    for credentials, topic, text in (
        (COOK, "bills", "No default permission for topic:bills"),
        (COOK, "secret", "No default permission for topic:secret"),
        (
            Credentials("kitchen7", "wrong-secret"),
            "orders",
            "Check signature failed for accessKey=kitchen7",
        ),
        (Credentials("stranger", "any-secret"), "orders", "No acl config for stranger"),
        (None, "orders", "No accessKey is configured"),
    ):
        with (
            Producer(name_server=guarded.address, credentials=credentials, retries=0) as producer,
            pytest.raises(BrokerError) as raised,
        ):
            producer.send(topic, b"x")
        assert (raised.value.code, raised.value.remark) == (SYSTEM_ERROR, REFUSED + text)
    with (
        Admin(name_server=guarded.address, credentials=COOK) as admin,
        pytest.raises(BrokerError, match="Need admin permission for request code=17"),
    ):
        admin.create_topic("more")


def test_no_request_code_is_served_unsigned(guarded: Guarded) -> None:
    fields = {"topic": "orders", "b": "orders", "group": "kitchen", "consumerGroup": "kitchen"}
    with Client() as client:
        for broker in guarded.brokers:
            for code in (*RequestCode, 30_002, 7_777):
                for forged in (
                    {},
                    {"AccessKey": "keeper7"},
                    {"AccessKey": "keeper7", "Signature": "x"},
                ):
                    answer = client.request(broker.address, code, fields | forged, b"{}")
                    assert (answer.code, (answer.remark or "")[: len(REFUSED)]) == (1, REFUSED), (
                        code,
                        answer,
                    )


def test_requests_50_to_54_change_the_file_and_what_is_in_force(guarded: Guarded) -> None:
    file = guarded.main_file(0)
    new = Credentials("newcomer", "first-secret: 0x1f")
    made = {
        "accessKey": "newcomer",
        "secretKey": "first-secret: 0x1f",
        "topicPerms": "orders=PUB,a=SUB",
    }
    assert guarded.ask(0, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, made).code == 0
    assert guarded.sends(0, new)
    assert not guarded.sends(1, new)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "owner: team a" in file.read_text()

    shown = json.loads(guarded.ask(0, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {}).body or b"")
    assert shown["globalWhiteAddrs"] == ["198.51.100.*"]
    names = [account["accessKey"] for account in shown["plainAccessConfigs"]]
    assert names == ["keeper7", "kitchen7", "newcomer"]
    versions = guarded.ask(0, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}).fields
    assert json.loads(versions["allAclFileVersion"])[str(file)]["counter"] == 1
    assert json.loads(versions["version"])["counter"] == 1
    assert (versions["brokerName"], versions["clusterName"]) == ("broker1", "DefaultCluster")
    assert versions["brokerAddr"] == guarded.brokers[0].address

    changed = made | {"secretKey": "second-secret"}
    assert guarded.ask(0, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, changed).code == 0
    assert not guarded.sends(0, new)
    assert guarded.sends(0, Credentials("newcomer", "second-secret"))
    white = {"globalWhiteAddrs": "127.0.0.{1,2}", "aclFileFullPath": str(file)}
    assert guarded.ask(0, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, white).code == 0
    assert guarded.sends(0, None)
    white = {"globalWhiteAddrs": "198.51.100.*"}
    assert guarded.ask(0, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, white).code == 0
    assert not guarded.sends(0, None)
    assert guarded.ask(0, RequestCode.DELETE_ACL_CONFIG, {"accessKey": "newcomer"}).code == 0
    assert not guarded.sends(0, Credentials("newcomer", "second-secret"))


def test_changes_that_are_wrong_change_nothing(guarded: Guarded) -> None:
    before = guarded.main_file(0).read_bytes()
    account = {"accessKey": "newcomer", "secretKey": "any-secret"}
    for code, fields, failed, text in (
        (50, account | {"secretKey": "short"}, CHANGE_FAILED, "The accessKey=newcomer and "),
        (50, account | {"topicPerms": "a=ANY"}, CHANGE_FAILED, "give DENY"),
        (50, account | {"groupPerms": "a=SUB,a=DENY"}, CHANGE_FAILED, "two permissions for a"),
        (50, account | {"whiteRemoteAddress": "10.*"}, CHANGE_FAILED, "give an address"),
        (51, {"accessKey": "newcomer"}, DELETE_FAILED, "The accesskey[newcomer] "),
        (53, {"globalWhiteAddrs": "host"}, WHITE_FAILED, "give an address"),
        (
            53,
            {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd"},
            WHITE_FAILED,
            "not one of the files",
        ),
    ):
        answer = guarded.ask(0, code, fields)
        assert (answer.code, text in (answer.remark or "")) == (failed, True), answer
        assert "any-secret" not in (answer.remark or "")
    assert guarded.main_file(0).read_bytes() == before
    for code in range(50, 55):
        if code != RequestCode.GET_BROKER_CLUSTER_ACL_INFO:
            answer = guarded.ask(0, code, account, COOK)
            assert "Need admin permission" in (answer.remark or "")


def test_changed_files_hold_at_once_and_broken_ones_never(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    file, folder = guarded.main_file(1), guarded.homes[1] / "conf" / "acl"
    extra = Credentials("extra77", "extra-secret")
    text = "accounts: [{accessKey: extra77, secretKey: extra-secret, topicPerms: [orders=PUB]}]\n"
    assert not guarded.sends(1, extra)
    (folder / "more").mkdir(parents=True)
    write(folder / "more" / "extra.yaml", text)
    await_true(lambda: guarded.sends(1, extra))
    # A change of an account goes to the file that has it.
    made = {"accessKey": "extra77", "secretKey": "other-secret"}
    assert guarded.ask(1, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, made).code == 0
    assert "other-secret" in (folder / "more" / "extra.yaml").read_text()
    (folder / "more" / "extra.yaml").unlink()
    await_true(lambda: not guarded.sends(1, Credentials("extra77", "other-secret")))

    with caplog.at_level(logging.ERROR, "pyrmq.audit"):
        write(file, ACCOUNTS[:-40] + "   topicPerms: [")
        await_true(lambda: "stay in force" in caplog.text)
    assert "kitchen-secret" not in caplog.text
    assert guarded.sends(1, COOK)
    answer = guarded.ask(1, RequestCode.DELETE_ACL_CONFIG, {"accessKey": "kitchen7"})
    assert answer.code == DELETE_FAILED
    write(file, ACCOUNTS.replace("orders=PUB|SUB", "orders=SUB"))
    await_true(lambda: not guarded.sends(1, COOK))
    write(file, ACCOUNTS)
    await_true(lambda: guarded.sends(1, COOK))


def alone(store: Path, **values: Any) -> Broker:  # noqa: ANN401 - of any kind
    """A broker that has not started and knows no name server."""
    return Broker(
        listen_port=0,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        store_path_root_dir=str(store),
        **values,
    )


def test_a_broker_without_accounts_says_so(tmp_path: Path) -> None:
    with (
        alone(tmp_path) as broker,
        Client() as client,
    ):
        for code in range(50, 55):
            answer = client.request(broker.address, code, {"accessKey": "newcomer"})
            assert (answer.code, "aclEnable=true" in (answer.remark or "")) == (SYSTEM_ERROR, True)


def test_a_broker_that_cannot_protect_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    good = home(tmp_path / "good")
    shown = home(tmp_path / "shown")
    (shown / "conf" / "plain_acl.yml").chmod(0o644)
    (tmp_path / "empty").mkdir()
    on: dict[str, Any] = {"acl_enable": True}

    def has(name: str, text: str) -> dict[str, Any]:
        return on | {"rocketmq_home": str(home(tmp_path / name, text))}

    for values, text in (
        (on, "needs `rocketmqHome`"),
        (on | {"rocketmq_home": str(tmp_path / "empty")}, "there is neither"),
        (on | {"rocketmq_home": str(shown)}, "chmod 600"),
        (on | {"rocketmq_home": str(good), "authentication_enabled": True}, "not both"),
        (
            has("half", ACCOUNTS[: ACCOUNTS.index("PUB|SUB")]),
            "plain_acl.yml`: it is not a YAML file",
        ),
        (has("typo", ACCOUNTS.replace("groupPerms", "groupPrems")), "did you mean `groupPerms`"),
        (has("twice", ACCOUNTS.replace("keeper7", "kitchen7")), "kitchen7 is listed twice"),
        (has("short", ACCOUNTS.replace("keeper-secret-4d1f", "short")), "longer than 6"),
        (has("unset", ACCOUNTS.replace("keeper-secret-4d1f", "")), "longer than 6"),
        (has("both", ACCOUNTS.replace("bills=SUB", "orders=SUB")), "two permissions for orders"),
        (has("nobody", "accounts: []"), "nobody could send a request"),
    ):
        with pytest.raises(ConfigError, match=text):
            alone(tmp_path / "store", **values).start()
    monkeypatch.setenv("ROCKETMQ_HOME", str(good))
    with (
        alone(tmp_path / "store", **on) as broker,
        Client(credentials=KEEPER) as client,
    ):
        assert client.request(broker.address, RequestCode.GET_BROKER_CONFIG, {}).code == 0
