"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

import json
import logging
import re
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_security import BOB_PASSWORD, ROOT_PASSWORD, Secured, bob, root
from tests.e2e.wire import Connection, await_true

from pyrmq import Admin, Credentials
from pyrmq.codes import RequestCode
from pyrmq.remoting import Client
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

AUDIT = "pyrmq.audit"
PASSWORD = "fresh-pass-3b1d"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    # The lowest level of the process's log is that of the loggers when its first server starts.
    logger = logging.getLogger(AUDIT)
    before = logger.level
    logger.setLevel(logging.INFO)
    running = Secured(tmp_path_factory.mktemp("audited"))
    yield running
    running.stop()
    logger.setLevel(before)


def lines(caplog: pytest.LogCaptureFixture, *parts: str) -> list[str]:
    """The audit's lines that have all these parts."""
    found = [one.getMessage() for one in caplog.records if one.name == AUDIT]
    return [line for line in found if all(part in line for part in parts)]


def test_each_change_has_one_line(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with Admin(name_server=secured.address, credentials=root()) as admin:
        admin.create_topic("audited")
    await_true(lambda: len(lines(caplog, "Topic:audited")) >= 2)
    for line in lines(caplog, "Topic:audited"):
        assert re.fullmatch(
            r'change user="root" from=127\.0\.0\.1:\d+ code=17 '
            r"request=UPDATE_AND_CREATE_TOPIC "
            r'resources="Topic:audited" result=SUCCESS reason=""',
            line,
        )
    assert len(lines(caplog, "Topic:audited")) == 2
    broker = secured.brokers[0].address
    with Client(credentials=root()) as client:
        body = f'{{"username":"carol","password":"{PASSWORD}","userType":"Normal"}}'.encode()
        fields = {"username": "carol"}
        assert client.request(broker, RequestCode.AUTH_CREATE_USER, fields, body).code == 0
        # Looking is no change.
        client.request(broker, RequestCode.AUTH_GET_USER, fields)
        client.request(broker, RequestCode.GET_BROKER_CONFIG)
        failed = client.request(
            broker, RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=99"
        )
        assert failed.code != 0
    await_true(lambda: bool(lines(caplog, "UPDATE_BROKER_CONFIG")))
    (line,) = lines(caplog, "AUTH_CREATE_USER")
    assert 'resources="Cluster:DefaultCluster username=carol" result=SUCCESS' in line
    (line,) = lines(caplog, "UPDATE_BROKER_CONFIG")
    assert "result=SUCCESS" not in line
    assert "brokerPermission" in line
    assert not lines(caplog, "AUTH_GET_USER")
    assert not lines(caplog, "GET_BROKER_CONFIG")


def test_each_refusal_has_a_line_with_its_cause(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    address = secured.brokers[1].address
    with Client(credentials=bob()) as client:
        client.request(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "secret"})
    with Client(credentials=Credentials("bob", "wrong-pass-55aa")) as client:
        client.request(address, RequestCode.GET_BROKER_CONFIG)
    forged = Connection(address)
    name = "eve\n2026-01-01 change user=root" + "x" * 5000
    forged.ask(RequestCode.UPDATE_BROKER_CONFIG, {"AccessKey": name, "Signature": "eA=="})
    forged.close()
    await_true(lambda: bool(lines(caplog, "UPDATE_BROKER_CONFIG", "refused")))
    (line,) = lines(caplog, "DELETE_TOPIC_IN_BROKER")
    assert line.startswith('refused user="bob" from=127.0.0.1:')
    assert 'resources="Topic:secret" result=NO_PERMISSION reason="User:bob has no perm' in line
    (line,) = lines(caplog, "GET_BROKER_CONFIG")
    assert "the signature is not that of user" in line
    (line,) = lines(caplog, "UPDATE_BROKER_CONFIG", "refused")
    assert "\n" not in line
    assert r"eve\n2026" in line
    assert len(line) < 1200


def test_a_request_whose_user_loses_its_rights_while_it_waits_has_a_line(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    broker = secured.brokers[1]
    with Admin(name_server=secured.address, credentials=root()) as admin:
        admin.create_topic("orders-held", queues=1)
    pull: dict[str, str | int | bool | None] = {"topic": "orders-held", "consumerGroup": "kitchen"}
    pull |= {"queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 6, "commitOffset": 0}
    pull |= {"suspendTimeoutMillis": 20_000, "subscription": "*", "subVersion": 0}
    codes: list[int] = []

    def wait() -> None:
        with Client(credentials=bob()) as client:
            answer = client.request(broker.address, RequestCode.PULL_MESSAGE, pull, timeout=30)
            codes.append(answer.code)

    waiting = Thread(target=wait)
    waiting.start()
    await_true(lambda: broker.health()["waiting_pulls"] == 1)
    with Client(credentials=root()) as client:

        def set_status(status: str) -> None:
            body = json.dumps({"userStatus": status}).encode()
            fields = {"username": "bob"}
            client.ask(broker.address, RequestCode.AUTH_UPDATE_USER, fields, body)

        set_status("disable")
        try:
            send: dict[str, str | int | bool | None] = {"a": "g", "b": "orders-held", "c": "TBW102"}
            send |= dict.fromkeys("efgh", 0) | {"d": 1}
            client.ask(broker.address, RequestCode.SEND_MESSAGE_V2, send, b"not for bob")
            waiting.join(20)
        finally:
            set_status("enable")
    assert codes == [16]
    await_true(lambda: bool(lines(caplog, "PULL_MESSAGE")))
    (line,) = lines(caplog, "PULL_MESSAGE")
    assert line.startswith('refused user="bob" from=127.0.0.1:')
    assert 'result=NO_PERMISSION reason="user \\"bob\\" is disabled"' in line


def test_a_topic_beyond_a_users_limit_is_refused_and_has_a_line(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    broker = secured.brokers[0]
    fields: dict[str, str | int | bool | None] = {
        "a": "group",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "j": 0,
        "k": False,
        "i": "",
        "l": 0,
        "m": False,
    }
    broker.reconfigure({"max_topics_per_user": 1})
    try:
        with Client(credentials=bob()) as client:
            code = RequestCode.SEND_MESSAGE_V2
            made = client.request(broker.address, code, fields | {"b": "orders-1"}, b"x")
            assert made.code == 0, made.remark
            refused = client.request(broker.address, code, fields | {"b": "orders-2"}, b"x")
        assert refused.code == 16
        assert "maxTopicsPerUser" in (refused.remark or "")
    finally:
        broker.reconfigure({"max_topics_per_user": 0})
    await_true(lambda: bool(lines(caplog, "Topic:orders-2")))
    (line,) = lines(caplog, "Topic:orders-2")
    assert line.startswith('refused user="bob" from=127.0.0.1:')
    assert 'result=NO_PERMISSION reason="user bob has made 1 topics' in line


def test_refusals_of_one_address_are_counted_beyond_a_few(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Connection(secured.address)
    for _ in range(30):
        answer = stranger.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "a", "key": "b"})
        assert answer.code == 16
    stranger.close()
    guard = secured.name_server.users
    assert guard is not None
    assert guard.guard.refused >= 30
    with Admin(name_server=secured.address, credentials=root()) as admin:
        admin.create_topic("after")
    await_true(lambda: bool(lines(caplog, "Topic:after")))
    assert 1 <= len(lines(caplog, "PUT_KV_CONFIG", "refused")) <= 10


def test_no_secret_is_in_the_log(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    test_each_refusal_has_a_line_with_its_cause(secured, caplog)
    for secret in (ROOT_PASSWORD, BOB_PASSWORD, PASSWORD, "wrong-pass-55aa", "eA=="):
        assert secret not in caplog.text


def test_a_server_without_users_believes_no_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT), cluster() as running:
        with Client(credentials=bob()) as client:
            fields = {
                "topic": "open",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "defaultTopic": "TBW102",
                "topicSysFlag": "0",
                "order": "false",
            }
            code = RequestCode.UPDATE_AND_CREATE_TOPIC
            assert client.request(running.broker.address, code, fields).code == 0
        await_true(lambda: bool(lines(caplog, "Topic:open")))
    (line,) = lines(caplog, "Topic:open")
    assert line.startswith('change user="-" from=127.0.0.1:')
