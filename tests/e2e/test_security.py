"""Users, signatures and policies over real sockets: who gets in, who does not, and what changes."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import logging
import pickle
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.e2e.pairs import Pair
from tests.e2e.wire import Connection, await_true
from tests.secret_search import planted

from pyrmq import (
    Admin,
    Broker,
    ConfigError,
    Credentials,
    NameServer,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    QueueId,
    RmqError,
    RouteError,
    SimpleConsumer,
)
from pyrmq.codes import RequestCode
from pyrmq.config import BrokerOptions, NameServerOptions
from pyrmq.errors import PermissionDenied
from pyrmq.remoting import Client, Command
from pyrmq.server.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq import PoppedMessage

ROOT_PASSWORD, BOB_PASSWORD = "root-pass-7f3a", "bob-pass-91cc"
NO_PERMISSION = 16
DENIED = (PermissionDenied, RouteError, NameServerUnreachable)


def write_private(path: Path, value: object) -> Path:
    """Write JSON into a file of mode 0600."""
    path.write_text(json.dumps(value), encoding="utf-8")
    path.chmod(0o600)
    return path


def entry(resource: str, *actions: str, decision: str = "Allow") -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision}


def people() -> dict[str, Any]:
    entries = [entry("Topic:orders*", "Pub", "Sub", "Get"), entry("Group:kitchen", "Sub", "Get")]
    return {
        "users": [
            {"username": "root", "password": ROOT_PASSWORD, "userType": "Super"},
            {"username": "bob", "password": BOB_PASSWORD},
            {"username": "eve", "password": "eve-pass"},
        ],
        "acls": [{"subject": "User:bob", "policies": [{"entries": entries}]}],
    }


class Secured(Pair):
    """A name server and two brokers that check everything, with a file of users each."""

    def __init__(self, directory: Path) -> None:
        root = {"accessKey": "root", "secretKey": ROOT_PASSWORD}
        self.root_file = write_private(directory / "root.json", root)
        self.files = [write_private(directory / f"users{at}.json", people()) for at in range(3)]
        super().__init__(directory, [self.options(at) for at in range(3)])

    def options(self, at: int) -> dict[str, Any]:
        """The options that check everything, with one of the files."""
        return {
            "authentication_enabled": True,
            "authorization_enabled": True,
            "auth_config_path": str(self.files[at]),
            "inner_client_credentials_path": str(self.root_file),
            # These tests fail to log in hundreds of times.
            "failed_login_max_delay": 0,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    running = Secured(tmp_path_factory.mktemp("secured"))
    with Admin(name_server=running.address, credentials=root()) as admin:
        admin.create_topic("orders")
        admin.create_topic("secret")
    yield running
    running.stop()


def root() -> Credentials:
    return Credentials("root", ROOT_PASSWORD)


def bob() -> Credentials:
    return Credentials("bob", BOB_PASSWORD)


def test_a_user_does_what_its_policies_allow(secured: Secured) -> None:
    with Producer(name_server=secured.address, credentials=bob()) as producer:
        producer.send("orders", b"one", keys='ü€"\\k', tags="a")
        producer.send("orders", b"x" * 20_000)
        producer.send_batch("orders", [b"%d" % number for number in range(10)])
        futures = [producer.send_async("orders", b"many") for _ in range(500)]
        assert all(future.result(30) for future in futures)
    group: dict[str, Any] = {
        "name_server": secured.address,
        "group": "kitchen",
        "credentials": bob(),
    }
    with PullConsumer(**group) as consumer:
        consumer.subscribe("orders")
        found = 0
        while found < 512:
            found += len(consumer.poll(timeout=30))
        consumer.commit()
    assert found == 512


def test_nobody_else_gets_in(secured: Secured) -> None:
    strangers = [Credentials("eve", "eve-pass"), Credentials("bob", "wrong"), None]
    for credentials in strangers:
        with Producer(name_server=secured.address, credentials=credentials, retries=0) as producer:
            with pytest.raises(DENIED) as raised:
                producer.send("orders", b"x")
            assert BOB_PASSWORD not in str(raised.value)
    with (
        Producer(name_server=secured.address, credentials=bob(), retries=0) as producer,
        pytest.raises(DENIED, match="Topic:secret"),
    ):
        producer.send("secret", b"x")


def test_no_request_code_is_served_unsigned(secured: Secured) -> None:
    fields = {"topic": "orders", "b": "orders", "group": "kitchen", "consumerGroup": "kitchen"}
    with Client() as client:
        for address in (secured.address, *(broker.address for broker in secured.brokers)):
            for code in (*RequestCode, 30_001, 7_777):
                for forged in ({}, {"AccessKey": "root"}, {"AccessKey": "root", "Signature": "x"}):
                    answer = client.request(address, code, fields | forged, b"{}")
                    assert answer.code == NO_PERMISSION, (code, answer)


def signed(user: str, secret: str, fields: dict[str, str]) -> dict[str, str]:
    """Sign a request without a body."""
    named = {"AccessKey": user, **fields}
    text = "".join(named[key] for key in sorted(named))
    made = hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    return {**named, "Signature": base64.b64encode(made).decode()}


def test_each_request_of_a_connection_is_checked_by_itself(secured: Secured) -> None:
    """Apache's signature names no time: who reads the network without TLS can send it again."""
    fields = {"topic": "orders", "queueId": "0"}
    good = signed("bob", BOB_PASSWORD, fields)
    of_eve = signed("eve", "eve-pass", fields)
    sent: list[tuple[dict[str, str], bool]] = [
        (good, True),
        (fields, False),
        ({**fields, "AccessKey": "bob"}, False),
        ({**good, "AccessKey": "root"}, False),
        ({**good, "topic": "secret"}, False),
        ({**good, "more": "x"}, False),
        ({**of_eve, "Signature": good["Signature"]}, False),
        (good, True),
    ]
    for address in (secured.brokers[0].address, secured.address):
        code = RequestCode.GET_MAX_OFFSET
        if address == secured.address:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        with Connection(address) as connection:
            frames = (
                Command(code, {**one}, opaque=at).encode() for at, (one, _) in enumerate(sent)
            )
            connection.write(b"".join(frames))
            answers = sorted((connection.read() for _ in sent), key=lambda one: one.opaque)
        served = [answer.code != NO_PERMISSION for answer in answers]
        assert served == [is_served for _, is_served in sent], address


def test_a_message_of_another_topic_does_not_come_by_the_retry_topic(secured: Secured) -> None:
    with Producer(name_server=secured.address, credentials=root()) as producer:
        result = producer.send("secret", b"not for bob")
    at = next(broker for broker in secured.brokers if result.broker == broker.options.broker_name)
    with Client(credentials=root()) as client:
        asked: dict[str, Any] = {
            "topic": "secret",
            "queueId": result.queue_id,
            "index": result.queue_offset,
        }
        asked |= {"count": 1}
        answer = client.ask(at.address, RequestCode.QUERY_CONSUME_QUEUE, asked)
        offset = json.loads(answer.body or b"")["queueData"][0]["physicOffset"]
    with Client(credentials=bob()) as client:
        back: dict[str, Any] = {"offset": offset, "group": "kitchen", "delayLevel": 0}
        origins: list[dict[str, str]] = [{}, {"originTopic": "orders"}]
        for origin in (*origins, {"originTopic": "%RETRY%kitchen"}):
            answer = client.request(at.address, RequestCode.CONSUMER_SEND_MSG_BACK, back | origin)
            assert answer.code == NO_PERMISSION, (origin, answer)
        answer = client.request(at.address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
        assert answer.code == NO_PERMISSION


def test_statistics_of_further_topics_need_the_right_to_each(secured: Secured) -> None:
    with Admin(name_server=secured.address, credentials=root()) as admin:
        for topic in ("orders", "orders2", "salaries"):
            admin.create_topic(topic, queues=1)
    (address, *_) = (broker.address for broker in secured.brokers)
    with Client(credentials=bob()) as client:

        def ask(*further: str) -> Any:  # noqa: ANN401
            body = json.dumps({"topics": further}).encode()
            code, fields = RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}
            return client.request(address, code, fields, body)

        assert ask().code == 0
        seen = ask("orders2", "orders3")
        assert seen.code == 0
        assert (b'"orders2"' in seen.body, b'"orders3"' in seen.body) == (True, False)
        assert ask("orders2", "salaries").code == NO_PERMISSION
        assert ask(*["orders2"] * 1001).code not in {0, NO_PERMISSION}


def test_a_user_has_no_right_to_the_retry_topics_of_others(secured: Secured) -> None:
    pull = {"queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0}
    pull |= {"suspendTimeoutMillis": 0, "subVersion": 0}
    pop = {"queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 0}
    pop |= {"bornTime": 0, "initMode": 0}
    codes: list[tuple[int, dict[str, int]]] = [
        (RequestCode.PULL_MESSAGE, pull),
        (RequestCode.POP_MESSAGE, pop),
        (RequestCode.PEEK_MESSAGE, pop),
        (RequestCode.QUERY_CONSUMER_OFFSET, {"queueId": 0}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"queueId": 0, "commitOffset": 9}),
    ]
    made = {"topicConfigList": [{"topicName": "%RETRY%other", "perm": 0}]}
    lock = {"consumerGroup": "kitchen", "clientId": "c"}
    lock_body = {"topic": "%RETRY%other", "brokerName": "broker1", "queueId": 0}
    with Client(credentials=bob()) as client:
        for broker in secured.brokers:
            for code, fields in codes:
                for topic in ("%RETRY%other", "%RETRY%kitchen_2", "%RETRY%other+orders"):
                    asked: dict[str, Any] = {**fields, "topic": topic, "consumerGroup": "kitchen"}
                    answer = client.request(broker.address, code, asked)
                    assert answer.code == NO_PERMISSION, (code, topic, answer)
                own: dict[str, Any] = {**fields, "topic": "%RETRY%kitchen"}
                own["consumerGroup"] = "kitchen"
                assert client.request(broker.address, code, own).code != NO_PERMISSION
            for code, body in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, made),
                (RequestCode.LOCK_BATCH_MQ, lock | {"mqSet": [lock_body]}),
            ):
                answer = client.request(broker.address, code, {}, json.dumps(body).encode())
                assert answer.code == NO_PERMISSION, (code, answer)


def test_messages_that_come_again_are_popped_hidden_and_acknowledged(secured: Secured) -> None:
    with Admin(name_server=secured.address, credentials=root()) as admin:
        admin.create_topic("orders-again", queues=1)
    with Producer(name_server=secured.address, credentials=bob()) as producer:
        for broker in ("broker1", "broker2"):
            producer.send("orders-again", b"x", queue=QueueId("orders-again", broker, 0))
    given: dict[str, Any] = {"name_server": secured.address, "credentials": bob()}
    with SimpleConsumer(group="kitchen", **given) as consumer:
        consumer.subscribe("orders-again")

        def received(tries: int) -> list[PoppedMessage]:
            found: list[PoppedMessage] = []
            until = time.monotonic() + 30
            while len(found) < 2 and time.monotonic() < until:
                messages = consumer.receive(invisible=30, wait=2)
                found += [one for one in messages if one.reconsume_times == tries]
            return found

        for tries in (0, 1):
            for message in received(tries):
                consumer.change_invisible(message, 1)
        again = received(2)
        assert {message.broker for message in again} == {"broker1", "broker2"}
        consumer.ack(again)
    with Admin(name_server=secured.address, credentials=root()) as admin:
        assert "%RETRY%kitchen_orders-again" in admin.topics()


def test_transactions_and_client_ids_belong_to_their_users(secured: Secured) -> None:
    def beat(client_id: str) -> bytes:
        groups = [{"groupName": "bobs-transactions"}]
        tree = {"clientID": client_id, "producerDataSet": groups, "consumerDataSet": []}
        return json.dumps(tree).encode()

    properties = "UNIQ_KEY\x010A01\x02TRAN_MSG\x01true\x02PGROUP\x01bobs-transactions\x02"
    half: dict[str, Any] = {"a": "bobs-transactions", "b": "orders", "c": "TBW102", "d": 4, "e": 0}
    half |= {"f": 4, "g": time.time_ns() // 1_000_000, "h": 0, "i": properties}
    eve = Credentials("eve", "eve-pass")
    with Client(credentials=bob()) as of_bob, Client(credentials=eve) as of_eve:
        for broker in secured.brokers:
            code = RequestCode.HEART_BEAT
            assert of_bob.request(broker.address, code, {}, beat("bobs")).code == 0
            answer = of_eve.request(broker.address, code, {}, beat("bobs"))
            assert answer.code == NO_PERMISSION
            assert "another user" in (answer.remark or "")
            assert of_eve.request(broker.address, code, {}, beat("eves")).code == 0
            sent = of_bob.ask(broker.address, RequestCode.SEND_MESSAGE_V2, half, b"half")
            end: dict[str, Any] = {"producerGroup": "bobs-transactions", "commitOrRollback": 12}
            end["tranStateTableOffset"] = sent.fields["queueOffset"]
            end["commitLogOffset"] = int(sent.fields["msgId"][16:], 16)
            end |= {"msgId": "0A01", "transactionId": "0A01"}
            code = RequestCode.END_TRANSACTION
            answer = of_eve.request(broker.address, code, end)
            assert answer.code == NO_PERMISSION
            assert "topic of this transaction" in (answer.remark or "")
            assert of_bob.request(broker.address, code, end).code == 0


def test_requests_3001_to_3010_change_the_file_and_what_is_in_force(secured: Secured) -> None:
    address, file = secured.brokers[0].address, secured.files[1]
    send: dict[str, Any] = {
        "a": "g",
        "b": "orders",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 0,
        "h": 0,
    }

    def sends(password: str) -> int:
        with Client(credentials=Credentials("zoe", password)) as client:
            return client.request(address, RequestCode.SEND_MESSAGE_V2, send, b"body").code

    acl = {"policies": [{"entries": [entry("Topic:orders", "Pub")]}]}
    name, subject = {"username": "zoe"}, {"subject": "User:zoe"}
    with Client(credentials=root()) as client:

        def ask(code: int, fields: dict[str, str], body: object = None) -> Any:  # noqa: ANN401 - an answer's JSON
            data = None if body is None else json.dumps(body).encode()
            answer = client.ask(address, code, fields, data)
            return json.loads(answer.body) if answer.body else None

        ask(RequestCode.AUTH_CREATE_USER, name, {"password": "first-pass"})
        assert sends("first-pass") == NO_PERMISSION
        ask(RequestCode.AUTH_CREATE_ACL, subject, acl)
        assert sends("first-pass") == 0
        ask(RequestCode.AUTH_UPDATE_USER, name, {"password": "second-pass"})
        assert sends("first-pass") == NO_PERMISSION
        assert sends("second-pass") == 0
        shown = ask(RequestCode.AUTH_GET_USER, name)
        assert shown == {
            "username": "zoe",
            "password": "second-pass",
            "userType": "Normal",
            "userStatus": "enable",
        }
        assert len(ask(RequestCode.AUTH_LIST_USER, {"filter": "o"})) == 3
        assert ask(RequestCode.AUTH_GET_ACL, subject)["subject"] == "User:zoe"
        assert len(ask(RequestCode.AUTH_LIST_ACL, {"resourceFilter": "kitchen"})) == 1
        on_disk = json.loads(file.read_text())
        assert "zoe" in {user["username"] for user in on_disk["users"]}
        assert file.stat().st_mode & 0o777 == 0o600
        maybe = {"entries": [entry("Topic:orders", "Pub", decision="Maybe")]}
        for policies in ([maybe], []):
            wrong: dict[str, Any] = {"policies": policies}
            answer = client.request(
                address, RequestCode.AUTH_UPDATE_ACL, subject, json.dumps(wrong).encode()
            )
            assert answer.code == NO_PERMISSION
        assert sends("second-pass") == 0
        ask(RequestCode.AUTH_DELETE_ACL, subject)
        assert sends("second-pass") == NO_PERMISSION
        ask(RequestCode.AUTH_DELETE_USER, name)
        assert ask(RequestCode.AUTH_GET_USER, name) is None
        last = {"username": "root"}
        deletes, disables = RequestCode.AUTH_DELETE_USER, RequestCode.AUTH_UPDATE_USER
        for done, changed in ((deletes, {}), (disables, {"userStatus": "disable"})):
            answer = client.request(address, done, last, json.dumps(changed).encode())
            assert "last enabled super user" in (answer.remark or "")
        assert ask(RequestCode.AUTH_GET_USER, last)["userStatus"] == "enable"
    with Client(credentials=bob()) as client:
        for code in range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1):
            answer = client.request(address, code, name | subject, b"{}")
            assert answer.code == NO_PERMISSION


def test_a_changed_file_holds_at_once_and_a_broken_one_never(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    broker, file = secured.brokers[1], secured.files[2]
    fields: dict[str, Any] = {"topic": "orders", "queueId": 0}

    def code_of(password: str) -> int:
        with Client(credentials=Credentials("bob", password)) as client:
            return client.request(broker.address, RequestCode.GET_MAX_OFFSET, fields).code

    rotated = people()
    rotated["users"][1] |= {"password": "new-bob-pass", "previousPassword": BOB_PASSWORD}
    write_private(file, rotated)
    await_true(lambda: code_of("new-bob-pass") == 0)
    assert code_of(BOB_PASSWORD) == 0
    with caplog.at_level(logging.ERROR, "pyrmq.audit"):
        file.write_text(json.dumps(rotated)[:150])
        await_true(lambda: "stay in force" in caplog.text)
        file.write_text("{}")
        await_true(lambda: "has no users" in caplog.text)
    assert code_of("new-bob-pass") == code_of(BOB_PASSWORD) == 0
    del rotated["users"][1]["previousPassword"]
    write_private(file, rotated)
    await_true(lambda: code_of(BOB_PASSWORD) == NO_PERMISSION)
    assert code_of("new-bob-pass") == 0
    write_private(file, people())
    await_true(lambda: code_of(BOB_PASSWORD) == 0)


def test_a_secret_is_rotated_while_clients_send(secured: Secured) -> None:
    """The servers learn the new secret, then the clients, and last the servers forget the old."""
    rotated, fresh = people(), "rotated-bob-pass"
    rotated["users"][1] |= {"password": fresh, "previousPassword": BOB_PASSWORD}
    final = people()
    final["users"][1]["password"] = fresh
    clients = {secret: Sender(secured.address, secret) for secret in (BOB_PASSWORD, fresh)}
    with clients[BOB_PASSWORD] as old:
        old.go_on()
        try:
            for file in secured.files:
                write_private(file, rotated)
            await_true(lambda: all(knows(secured, fresh)))
            with clients[fresh] as new:
                # Both at once, on connections that stay open.
                old.go_on()
                new.go_on()
                old.end()
                for file in secured.files:
                    write_private(file, final)
                await_true(lambda: not any(knows(secured, BOB_PASSWORD)))
                new.go_on()
        finally:
            for file in secured.files:
                write_private(file, people())
            await_true(lambda: all(knows(secured, BOB_PASSWORD)))
    assert [error for client in clients.values() for error in client.failed] == []


def knows(secured: Secured, password: str) -> list[bool]:
    """Whether each server takes a password of bob's."""
    addresses = [secured.address, *(broker.address for broker in secured.brokers)]
    with Client(credentials=Credentials("bob", password)) as client:
        code, asked = RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}
        answers = [client.request(address, code, asked) for address in addresses]
    return [answer.code != NO_PERMISSION for answer in answers]


class Sender:
    """A client of bob's that sends all the time, without a second try."""

    def __init__(self, name_server: str, password: str) -> None:
        self._name_server, self._user = name_server, Credentials("bob", password)
        self._stop, self._sent = Event(), 0
        self.failed: list[RmqError] = []

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Send no more."""
        self._stop.set()
        self._thread.join()

    def go_on(self) -> None:
        """Wait until more was sent, to each broker."""
        before = self._sent
        await_true(lambda: self._sent > before + 16 or self.failed)
        assert self.failed == []

    def _run(self) -> None:
        given: dict[str, Any] = {"name_server": self._name_server, "retries": 0}
        with Producer(credentials=self._user, **given) as producer:
            while not self._stop.is_set():
                try:
                    producer.send("orders", b"x")
                    self._sent += 1
                except RmqError as error:
                    self.failed.append(error)


def test_clients_read_the_environment(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(secured.root_file))
    with Admin(name_server=secured.address) as admin:
        assert "orders" in admin.topics()
    with Producer(name_server=secured.address) as producer:
        assert producer.send("orders", b"x").topic == "orders"
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(secured.root_file) + ".missing")
    with pytest.raises(ConfigError, match="PYRMQ_CREDENTIALS"):
        Producer(name_server=secured.address)


def test_secrets_are_nowhere_to_be_read(secured: Secured, tmp_path: Path) -> None:
    credentials = bob()
    assert BOB_PASSWORD not in f"{credentials!r} {credentials} {vars(type(credentials))}"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            leak(credentials)
    with pytest.raises(TypeError):
        json.dumps(credentials)
    options = f"{secured.brokers[0].options!r} {secured.brokers[0].options.to_properties()}"
    assert ROOT_PASSWORD not in options
    broken = tmp_path / "broken.json"
    broken.write_text('{"accessKey": "u", "secretKey": "half-a-secr')
    broken.chmod(0o600)
    with pytest.raises(ConfigError) as raised:
        Credentials.from_file(broken)
    assert "half" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_wrong_credentials_are_refused(tmp_path: Path) -> None:
    for given in (("", "x"), ("u", ""), ("u", " "), ("u", None)):
        with pytest.raises(ConfigError, match="empty or not a string"):
            Credentials(*given)
    file = write_private(tmp_path / "c.json", {"accessKey": "u", "secretKey": "s"})
    assert Credentials.from_file(file).access_key == "u"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Credentials.from_file(file)
    for value, text in (
        ([], "not a JSON object"),
        ({"accessKey": "u"}, "lacks"),
        ({"accessKey": "u", "secretKey": "s", "secret": 1}, "unknown keys secret"),
        ({"accesKey": "u", "secretKey": "s"}, "did you mean `accessKey`"),
        (
            {"accessKey": "u", "secretKey": "s", "tls": {"trsut": "ca.pem"}},
            "keys trsut.*did you mean `trust`",
        ),
    ):
        with pytest.raises(ConfigError, match=text):
            Credentials.from_file(write_private(tmp_path / "w.json", value))
    with pytest.raises(ConfigError, match=r"must be `pyrmq\.Credentials`"):
        Producer(name_server="127.0.0.1:1", credentials=("u", "s"))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [NameServer, Broker])
def test_a_server_that_cannot_protect_does_not_start(
    kind: type[NameServer | Broker], tmp_path: Path
) -> None:
    good = write_private(tmp_path / "users.json", people())
    shown = planted(write_private(tmp_path / "shown.json", people()))
    shown.chmod(0o640)
    half = planted(write_private(tmp_path / "half.json", people()))
    half.write_text(half.read_text()[:100])
    missing = str(tmp_path / "missing.json")
    on: dict[str, Any] = {"authentication_enabled": True}
    for values, text in (
        ({"authorization_enabled": True, "auth_config_path": str(good)}, "authenticationEnabled"),
        (on, "authConfigPath"),
        (on | {"auth_config_path": missing}, "cannot read"),
        (on | {"auth_config_path": str(shown)}, "chmod 600"),
        (on | {"auth_config_path": str(half)}, "cannot use"),
        (
            on | {"auth_config_path": str(write_private(tmp_path / "none.json", {}))},
            "it has no users",
        ),
        (
            on | {"auth_config_path": str(good), "inner_client_credentials_path": missing},
            "cannot read",
        ),
    ):
        store: dict[str, Any] = (
            {} if kind is NameServer else {"store_path_root_dir": str(tmp_path / "store")}
        )
        with pytest.raises(ConfigError, match=text):
            kind(listen_port=0, bind_address="127.0.0.1", **store, **values).start()


@pytest.mark.parametrize("role", [BrokerOptions, NameServerOptions])
def test_a_property_file_that_asks_for_more_is_refused(
    role: type[BrokerOptions | NameServerOptions], tmp_path: Path
) -> None:
    file = tmp_path / "server.conf"
    lines = ["migrateAuthFromV1Enabled=true", 'initAuthenticationUser={"username":"a"}']
    if role is NameServerOptions:
        lines.append("aclEnable=true")
    for line in lines:
        file.write_text(f"listenPort=0\n{line}\n")
        with pytest.raises(ConfigError, match="would serve everybody"):
            load(role, file)
    file.write_text("listenPort=0\naclEnable=false\ninitAuthenticationUser=\n")
    assert load(role, file).listen_port == 0


def test_a_broker_without_credentials_is_not_registered(secured: Secured, tmp_path: Path) -> None:
    options: dict[str, Any] = {"listen_port": 0, "bind_address": "127.0.0.1"}
    options["broker_ip1"] = "127.0.0.1"
    before = secured.name_server.brokers()
    with (
        Broker(
            **options, namesrv_addr=secured.address, store_path_root_dir=str(tmp_path)
        ) as broker,
        pytest.raises(RmqError, match="could not register"),
    ):
        broker.await_registration(0.5)
    assert len(secured.name_server.brokers()) == len(before)
