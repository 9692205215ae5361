"""The name server as its operator sees it: views, reload, status, Prometheus, log lines."""

from __future__ import annotations

import json
import logging
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.relay import frames, listening
from tests.e2e.wire import V4_6_1, Connection, ask, await_true, body_of, register
from tests.interop.jvm import free_port
from tests.reference.frame import RESPONSE, Frame, decode, encode

from pyrmq import NameServer
from pyrmq.cli import main
from pyrmq.cli.servers.status import quantile
from pyrmq.codes import RequestCode
from pyrmq.config import NAME_SERVER_STATUS
from pyrmq.errors import ConfigError, RmqError
from pyrmq.nameserver.views import version_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NameServer]:
    """A name server on a free port, with a port for metrics."""
    with NameServer(
        listen_port=0,
        bind_address=HOST,
        kv_config_path=tmp_path / "kvConfig.json",
        metrics_port=free_port(),
    ) as running:
        yield running


def get(server: NameServer, path: str) -> tuple[int, str]:
    """Return status and text of a path of the metrics port."""
    url = f"http://{HOST}:{server.options.metrics_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_tables_are_typed_views(server: NameServer) -> None:
    assert (server.brokers(), server.topics(), server.route("orders")) == ((), (), None)
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["orders", "stock"])
        (seen,) = server.brokers()
        assert seen.silent_seconds < 10
        assert seen._replace(silent_seconds=0.0)._asdict() == {
            "cluster": "C",
            "name": "broker-a",
            "broker_id": 0,
            "address": "127.0.0.1:10000",
            "advertised": {},
            "ha_address": "127.0.0.1:10912",
            "zone": None,
            "version": "5.5.0",
            "silent_seconds": 0.0,
            "timeout_seconds": 120.0,
            "topics": 2,
            "acting_master": False,
            "replaced_address": None,
        }
        assert server.topics() == ("orders", "stock")
        route = server.route("orders")
        assert route is not None
        assert route.brokers[0].addresses == {0: "127.0.0.1:10000"}
        assert (route.queues[0].broker, route.queues[0].write_queues, route.queues[0].perm) == (
            "broker-a",
            4,
            6,
        )
        assert route.order is None
    await_true(lambda: server.brokers() == ())


def test_version_numbers_have_their_names() -> None:
    names = {213: "4.0.0", 333: "4.6.0", 335: "4.6.1", 407: "4.9.7", 413: "5.0.0", 473: "5.3.0"}
    names |= {475: "5.3.1", 513: "5.5.0", 121: "before 4.0 (121)"}
    seen = {ordinal: version_name(ordinal) for ordinal in names}
    assert seen == names


def test_a_reload_lets_changes_of_the_file_hold_or_none(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    text = f"kvConfigPath={tmp_path / 'kv.json'}\nbindAddress={HOST}\n"
    file.write_text(text + "enableTopicList=true\n")
    server = NameServer.from_file(file, listen_port=0)
    with server:
        server.reload()
        file.write_text(text + "enableTopicList=false\norderMessageEnable=true\n")
        server.reload()
        assert not server.options.enable_topic_list
        assert server.options.order_message_enable
        off = ask(server.address, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"})
        assert off.code == 1
        file.write_text(text + "enableTopicList=true\nscanNotActiveBrokerInterval=7\n")
        with pytest.raises(ConfigError, match="scan_not_active_broker_interval; start it again"):
            server.reload()
        file.write_text(text + "enableTopicList=perhaps\n")
        with pytest.raises(ConfigError, match="enableTopicList"):
            server.reload()
        assert not server.options.enable_topic_list, "nothing was changed"


def test_a_reload_needs_a_file(server: NameServer) -> None:
    with pytest.raises(ConfigError, match="no file to reload"):
        server.reload()


def test_the_status_row_tells_brokers_counters_and_durations(server: NameServer) -> None:
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["orders", "stock"])
        fields = {"topic": "orders"}
        for _ in range(3):
            assert broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields).code == 0
        told: Any = body_of(ask(server.address, NAME_SERVER_STATUS))
    assert (told["ready"], told["status"], told["topics"]) == (True, "running", 2)
    assert [broker["name"] for broker in told["brokers"]] == ["broker-a"]
    assert sum(told["latencies"]["route"]["buckets"]) == 3
    assert sum(told["latencies"]["register"]["buckets"]) == 1
    # Python answers the query itself, which is counted before the next one.
    assert sum(told["latencies"]["python"]["buckets"]) == 0
    again: Any = body_of(ask(server.address, NAME_SERVER_STATUS))
    assert sum(again["latencies"]["python"]["buckets"]) == 1
    assert told["counters"]["registrations"] == 1


def test_a_registration_that_says_nothing_new_is_not_read_again(server: NameServer) -> None:
    def counters() -> dict[str, int]:
        told: Any = body_of(ask(server.address, NAME_SERVER_STATUS))
        counted: dict[str, int] = told["counters"]
        return counted

    with Connection(server.address) as broker:
        for _ in range(3):
            register(broker, "broker-a", ["orders", "stock"])
        assert (counters()["registrations"], counters()["registrations_unchanged"]) == (3, 2)
        assert (
            ask(server.address, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "stock"}).code == 0
        )
        assert server.topics() == ("orders",)
        register(broker, "broker-a", ["orders", "stock"])
        assert server.topics() == ("orders", "stock"), "what was taken from it came back"
        assert counters()["registrations_unchanged"] == 2


def test_status_prints_brokers_and_requests_for_people_and_programs(
    server: NameServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["nameserver", "status", "-n", server.address, "--interval", "0.05"]
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["orders", "stock"])
        assert main(words) == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0].startswith(f"name server {server.address}: ready, up ")
        assert shown[1].startswith("1 broker, 2 topics, ")
        (row,) = [line.split() for line in shown if line.startswith("C ")]
        assert row[:5] == ["C", "broker-a", "0", "127.0.0.1:10000", "5.5.0"]
        assert [line for line in shown if line.startswith("register ")]
        assert main([*words, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["requests"]["register"]["total"] == 1
        assert report["requests_per_second"] > 0


def test_status_says_which_name_server_is_away_and_fails(
    server: NameServer, capsys: pytest.CaptureFixture[str]
) -> None:
    away = f"{HOST}:{free_port()}"
    words = ["nameserver", "status", "-n", f"{server.address};{away}", "--interval", "0.01"]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert f"name server {server.address}: ready" in shown
    assert f"name server {away}: NOT READY (unreachable)" in shown


def test_status_works_with_a_name_server_that_does_not_answer_what_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Apache's before 5.0."""

    def serve(client: socket.socket) -> None:
        for frame in frames(client):
            request = decode(frame)
            if request.code != NAME_SERVER_STATUS:
                answer = Frame(code=0, flag=RESPONSE, version=V4_6_1, opaque=request.opaque)
                client.sendall(encode(answer))

    with listening(serve) as address:
        assert main(["nameserver", "status", "-n", address, "--interval", "0.01"]) == 0
    assert "not a name server of pyrmq" in capsys.readouterr().out


def test_quantiles_lie_within_their_bucket() -> None:
    assert quantile([], 0.5) is None
    assert quantile([0] * 25, 0.5) is None
    assert quantile([100, 0, 0, 0], 0.99) == 0.00099
    assert quantile([0, 0, 98, 2, 0], 0.99) == 0.006
    assert quantile([0, 0, 0, 0, 5], 0.5) == 0.012


def test_prometheus_gets_true_counters_and_histograms(server: NameServer) -> None:
    with Connection(server.address) as broker:
        register(broker, "broker-a", ["orders", "stock"])
        for _ in range(4):
            assert broker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}).code == 0
        status, text = get(server, "/metrics")
    assert status == 200
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    prefix = "pyrmq_nameserver_"
    assert float(samples[f'{prefix}request_seconds_count{{kind="route"}}']) == 4
    assert float(samples[f'{prefix}request_seconds_bucket{{kind="route",le="+Inf"}}']) == 4
    assert float(samples[f"{prefix}registrations_total"]) == 1
    assert float(samples[f"{prefix}topics"]) == 2
    assert float(samples[f"{prefix}ready"]) == 1
    assert any(name.startswith(f"{prefix}broker_silent_seconds{{") for name in samples)


def test_orchestrators_are_told_live_and_ready(tmp_path: Path) -> None:
    server = NameServer(
        listen_port=0,
        bind_address=HOST,
        kv_config_path=tmp_path / "kv.json",
        metrics_port=free_port(),
        need_wait_for_service=True,
        wait_seconds_for_service=3600,
    )
    assert not server.ready()
    with server:
        assert get(server, "/live") == (200, "live\n")
        assert get(server, "/ready") == (503, "not ready\n")
        server.reconfigure({"need_wait_for_service": False})
        assert get(server, "/ready") == (200, "ready\n")
        assert get(server, "/else")[0] == 404
    with pytest.raises(urllib.error.URLError):
        get(server, "/live")


def test_a_taken_metrics_port_stops_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port: int = taken.getsockname()[1]
        server = NameServer(
            listen_port=0,
            bind_address=HOST,
            kv_config_path=tmp_path / "kv.json",
            metrics_port=port,
        )
        with pytest.raises(RmqError, match=f"{port}.*metricsPort"):
            server.start()
        assert server.health()["status"] == "stopped"


def test_the_log_says_who_came_changed_and_went(
    server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    del server
    logging.getLogger("pyrmq").setLevel(logging.INFO)
    try:
        with (
            NameServer(listen_port=0, bind_address=HOST) as told,
            caplog.at_level(logging.INFO, "pyrmq"),
        ):
            with Connection(told.address) as broker:
                register(broker, "broker-a", ["orders", "stock"])
                register(broker, "broker-a", ["orders", "stock"], port=10_001)
                register(broker, "broker-b", ["orders", "stock"], port=10_001)
            await_true(lambda: told.brokers() == ())
            await_true(lambda: "its connection closed" in caplog.text)
    finally:
        logging.getLogger("pyrmq").setLevel(logging.NOTSET)
    for said in ("new broker", "it takes the place of 127.0.0.1:10000", "its name was broker-a"):
        assert said in caplog.text
