"""The name server from outside: the control plane's Python rows, over a socket."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import Connection, ask, body_of, register

from pyrmq import NameServer
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError, RmqError
from pyrmq.server.processors import Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NameServer]:
    """A name server on a free port."""
    with NameServer(
        listen_port=0,
        bind_address=HOST,
        kv_config_path=tmp_path / "kvConfig.json",
        config_store_path=tmp_path / "namesrv.properties",
    ) as running:
        yield running


def topics_of(server: NameServer, code: int, **fields: str) -> list[str]:
    tree: Any = body_of(ask(server.address, code, fields))
    return sorted(tree["topicList"])


def test_key_values_are_put_got_listed_and_deleted(server: NameServer) -> None:
    key = {"namespace": "N", "key": "k"}
    assert ask(server.address, RequestCode.PUT_KV_CONFIG, {**key, "value": "1"}).code == 0
    got = ask(server.address, RequestCode.GET_KV_CONFIG, key)
    assert (got.code, got.fields["value"]) == (0, "1")
    listed = ask(server.address, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert listed.body == b'{"table":{"k":"1"}}'
    assert ask(server.address, RequestCode.DELETE_KV_CONFIG, key).code == 0
    gone = ask(server.address, RequestCode.GET_KV_CONFIG, key)
    assert (gone.code, gone.remark) == (22, "No config item, Namespace: N Key: k")
    none = ask(server.address, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "M"})
    assert none.code == 22


def test_key_values_survive_a_restart(server: NameServer) -> None:
    fields = {"namespace": "N", "key": "k", "value": "1"}
    assert ask(server.address, RequestCode.PUT_KV_CONFIG, fields).code == 0
    server.stop(0)
    server.start()
    assert ask(server.address, RequestCode.GET_KV_CONFIG, fields).fields["value"] == "1"


def test_a_missing_field_is_refused_by_name(server: NameServer) -> None:
    answer = ask(server.address, RequestCode.PUT_KV_CONFIG, {"namespace": "N", "value": "v"})
    assert answer.code == 1
    assert "namespace or key is null" in str(answer.remark)


@pytest.mark.parametrize("form", ["JSON", "ROCKETMQ"])
def test_python_rows_answer_both_header_forms(server: NameServer, form: str) -> None:
    with Connection(server.address) as connection:
        answer = connection.ask(
            RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"}, serialize_type=form
        )
    assert answer.code == 22


def test_topics_are_listed_by_all_cluster_and_system(server: NameServer) -> None:
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["orders", "stock"])
        every = topics_of(server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert every == ["orders", "stock"]
        assert topics_of(server, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C") == every
        assert topics_of(server, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="D") == []
        system: Any = body_of(ask(server.address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS))
        assert sorted(system["topicList"]) == ["C", "broker-a"]
        assert system["brokerAddr"] == "127.0.0.1:10000"


def test_unit_topics_are_told_apart_by_their_flags(server: NameServer) -> None:
    with Connection(server.address) as one, Connection(server.address) as two:
        register(one, "broker-a", ["unit-1", "unit-2"], sys_flag=1)
        register(two, "broker-b", ["sub-1", "sub-2"], sys_flag=2, port=20_000)
        subscribed = ["sub-1", "sub-2"]
        assert topics_of(server, RequestCode.GET_UNIT_TOPIC_LIST) == ["unit-1", "unit-2"]
        assert topics_of(server, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == subscribed
        assert topics_of(server, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == subscribed


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(server: NameServer) -> None:
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["a", "b"])
        fields = {"topic": "a", "clusterName": "D"}
        assert ask(server.address, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields).code == 0
        assert topics_of(server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["a", "b"]
        assert ask(server.address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "a"}).code == 0
        assert topics_of(server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ["b"]


def test_write_permission_is_taken_and_given_back(server: NameServer) -> None:
    def perms() -> list[int]:
        fields = {"topic": "a", "acceptStandardJsonOnly": "true"}
        route: Any = body_of(ask(server.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields))
        return [queue["perm"] for queue in route["queueDatas"]]

    with Connection(server.address) as broker:
        register(broker, "broker-a", ["a", "b"])
        name = {"brokerName": "broker-a"}
        wiped = ask(server.address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, name)
        assert wiped.fields == {"wipeTopicCount": "2"}
        assert perms() == [4]
        added = ask(server.address, RequestCode.ADD_WRITE_PERM_OF_BROKER, name)
        assert added.fields == {"addTopicCount": "2"}
        assert perms() == [6]


def test_the_members_of_a_broker_name_have_bare_ids(server: NameServer) -> None:
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["a", "b"])
        fields = {"clusterName": "C", "brokerName": "broker-a"}
        answer = ask(server.address, RequestCode.GET_BROKER_MEMBER_GROUP, fields)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10000"},"brokerName":"broker-a",'
        b'"cluster":"C"}}'
    )


def test_a_route_of_a_zone_is_in_the_form_that_was_asked_for(server: NameServer) -> None:
    zone = {"__ZONE_MODE": "true", "__ZONE_NAME": "east"}
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["a", "b"], zone="east")
        for accepts, key in (("true", b'{"0":'), ("false", b"{0:")):
            fields = {"topic": "a", "acceptStandardJsonOnly": accepts, **zone}
            # A client of 4.9.3 reads bare keys: only its request decides.
            answer = broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=399)
            assert key in (answer.body or b"")


def test_options_are_shown_changed_and_kept(server: NameServer, tmp_path: Path) -> None:
    shown = ask(server.address, RequestCode.GET_NAMESRV_CONFIG).body or b""
    assert b"enableTopicList=true\n" in shown
    changed = ask(
        server.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false\n"
    )
    assert (changed.code, changed.remark) == (0, None)
    off = ask(server.address, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"})
    assert (off.code, str(off.remark)[:7]) == (1, "disable")
    assert "enableTopicList=false" in (tmp_path / "namesrv.properties").read_text()
    assert b"enableTopicList=false\n" in (
        ask(server.address, RequestCode.GET_NAMESRV_CONFIG).body or b""
    )


def test_options_of_the_native_rows_are_changed_too(server: NameServer) -> None:
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "a", "value": "broker-a:4"}
    asked = {"topic": "a", "acceptStandardJsonOnly": "true"}
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["a", "b"])
        assert broker.ask(RequestCode.PUT_KV_CONFIG, fields).code == 0
        before: Any = body_of(broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, asked))
        assert "orderTopicConf" not in before
        on = b"orderMessageEnable=true"
        assert broker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=on).code == 0
        after: Any = body_of(broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, asked))
        assert after["orderTopicConf"] == "broker-a:4"


def test_a_fixed_option_cannot_be_changed(server: NameServer) -> None:
    answer = ask(server.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"listenPort=1\n")
    assert answer.code == 1
    assert "cannot be changed while the name server runs: listenPort=0" in str(answer.remark)


def test_a_code_without_a_row_is_refused_with_a_remark(server: NameServer) -> None:
    answer = ask(server.address, RequestCode.SEND_MESSAGE)
    assert answer.code == 3
    assert answer.remark


def test_an_application_answers_a_free_code(tmp_path: Path) -> None:
    server = NameServer(listen_port=0, bind_address=HOST, kv_config_path=tmp_path / "kv.json")

    @server.processors.register(9001)
    def echo(request: Any) -> Response:  # noqa: ANN401 - the core's request
        assert request.remote.startswith(HOST)
        return Response(fields=request.fields, body=request.body)

    with server:
        answer = ask(server.address, 9001, {"a": "1"}, b"body")
        assert (answer.code, answer.fields, answer.body) == (0, {"a": "1"}, b"body")
        with pytest.raises(ConfigError, match="its table is fixed"):
            server.processors.register(9002, echo)


def test_a_handler_that_raises_is_answered_and_the_server_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = NameServer(listen_port=0, bind_address=HOST, kv_config_path=tmp_path / "kv.json")
    server.processors.register(9001, lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    with server, caplog.at_level(logging.ERROR, "pyrmq.server"):
        for _ in range(10):
            answer = ask(server.address, 9001)
            assert answer.code == 1
            assert answer.remark == "ZeroDivisionError: division by zero"
        assert server.health()["status"] == "running"


def test_a_slow_handler_holds_up_nobody_else(tmp_path: Path) -> None:
    server = NameServer(listen_port=0, bind_address=HOST, kv_config_path=tmp_path / "kv.json")
    asked, go = threading.Event(), threading.Event()

    @server.processors.register(9001)
    def slow(request: Any) -> None:  # noqa: ANN401 - the core's request
        del request
        asked.set()
        go.wait(20)

    with server, Connection(server.address) as connection:
        connection.send(9001)
        assert asked.wait(10)
        for _ in range(50):
            answer = ask(server.address, RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
            assert answer.code == 22
        go.set()


def test_more_requests_than_may_wait_are_told_that_the_server_is_busy(tmp_path: Path) -> None:
    server = NameServer(
        listen_port=0,
        bind_address=HOST,
        kv_config_path=tmp_path / "kv.json",
        default_thread_pool_queue_capacity=1,
    )
    taken, go = threading.Semaphore(0), threading.Event()

    @server.processors.register(9001)
    def slow(request: Any) -> None:  # noqa: ANN401 - the core's request
        del request
        taken.release()
        go.wait(20)

    with server, Connection(server.address) as connection:
        for _ in range(2):
            connection.send(9001)
            assert taken.acquire(timeout=10)
        # Both workers are busy: one more request may wait, the others are refused at once.
        for _ in range(5):
            connection.send(9001)
        answers = [connection.read() for _ in range(4)]
        assert [answer.code for answer in answers] == [2] * 4
        assert all(answer.remark for answer in answers)
        go.set()
        assert [connection.read().code for _ in range(3)] == [0, 0, 0]


def test_a_native_row_cannot_be_replaced(tmp_path: Path) -> None:
    server = NameServer(listen_port=0)
    with pytest.raises(ConfigError, match=r"105 \(GET_ROUTEINFO_BY_TOPIC\) is served natively"):
        server.processors.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: None)


def test_a_taken_port_is_named_with_what_to_do(server: NameServer, tmp_path: Path) -> None:
    port = int(server.address.rpartition(":")[2])
    second = NameServer(listen_port=port, bind_address=HOST, kv_config_path=tmp_path / "other.json")
    with pytest.raises(RmqError, match=str(port)) as caught:
        second.start()
    assert "in use" in str(caught.value).lower()
    assert second.health() == {"status": "new"}


def test_a_broken_kv_file_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text('{"configTable":')
    with pytest.raises(ConfigError, match=r"kvConfig\.json.*repair it"):
        NameServer(listen_port=0, bind_address=HOST, kv_config_path=file).start()


def test_the_default_files_are_apaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with NameServer(listen_port=0, bind_address=HOST) as server:
        fields = {"namespace": "N", "key": "k", "value": "1"}
        assert ask(server.address, RequestCode.PUT_KV_CONFIG, fields).code == 0
    kept = json.loads((tmp_path / "namesrv" / "kvConfig.json").read_text())
    assert kept == {"configTable": {"N": {"k": "1"}}}


def test_an_address_to_listen_on_may_be_a_name_and_one_that_is_not_found_is_named() -> None:
    with NameServer(listen_port=0, bind_address="localhost") as server:
        assert server.address.rsplit(":", 1)[0] in ("127.0.0.1", "[::1]")
    with pytest.raises(ConfigError, match="bindAddress: `not a host`"):
        NameServer(listen_port=0, bind_address="not a host").start()
