"""A broker's start on a locked, unwritable or half-written store, or without a name server."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.wire import ask, await_true, body_of

from pyrmq import Broker, NameServer
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError, ServerError

HOST = "127.0.0.1"


def broker(folder: Path, **options: object) -> Broker:
    values: dict[str, Any] = {
        "listen_port": 0,
        "bind_address": HOST,
        "broker_ip1": HOST,
        "broker_name": "broker-a",
        "store_path_root_dir": folder / "store",
        "mapped_file_size_commit_log": 1 << 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        **options,
    }
    return Broker(**values)


def create_topic(address: str, topic: str) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    answer = ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == 0, answer.remark


def test_a_started_broker_is_known_to_its_name_servers(tmp_path: Path) -> None:
    with (
        NameServer(listen_port=0, bind_address=HOST) as one,
        NameServer(listen_port=0, bind_address=HOST) as other,
    ):
        both = f"{one.address};{other.address}"
        with broker(tmp_path, namesrv_addr=both) as server:
            assert server.health()["registered"] == 2


def test_a_name_server_that_is_away_or_silent_does_not_keep_a_broker_from_starting(
    tmp_path: Path,
) -> None:
    with (
        socket.create_server((HOST, 0)) as gone,
        socket.create_server((HOST, 0)) as silent,
        NameServer(listen_port=0, bind_address=HOST) as names,
    ):
        refusing = gone.getsockname()[1]
        gone.close()
        listed = f"{HOST}:{refusing};{HOST}:{silent.getsockname()[1]};{names.address}"
        with broker(tmp_path, namesrv_addr=listed) as server:
            assert server.health()["status"] == "running"
            assert server.health()["registered"] == 1


def test_a_locked_store_is_said(tmp_path: Path) -> None:
    with broker(tmp_path) as first:
        with pytest.raises(ServerError, match=r"in use by another broker.*lock"):
            broker(tmp_path).start()
        assert first.health()["status"] == "running"


def test_a_taken_port_is_said_and_the_store_is_free_again(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=rf"{port}.*in use"):
            broker(tmp_path, listen_port=port).start()
    broker(tmp_path).start().stop()


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    # Root may write everywhere except in the kernel's own file systems.
    folder = Path("/sys/kernel") if os.geteuid() == 0 else closed
    with pytest.raises(ServerError, match=rf"cannot be written: {folder}"):
        broker(folder).start()


def test_a_file_in_the_place_of_the_store_is_said(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    with pytest.raises(ServerError, match="store"):
        broker(tmp_path).start()


def test_half_a_topics_file_is_replaced_by_its_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker(tmp_path) as server:
        create_topic(server.address, "first")
        create_topic(server.address, "second")
    file = tmp_path / "store" / "config" / "topics.json"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with caplog.at_level(logging.WARNING, "pyrmq"), broker(tmp_path) as server:
        table: Any = json.loads(ask(server.address, RequestCode.GET_ALL_TOPIC_CONFIG).body or b"{}")
        assert "first" in table["topicConfigTable"]
        await_true(lambda: "topics.json" in caplog.text)
    assert "taken from the backup" in caplog.text


def test_a_name_server_that_is_away_is_said_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server((HOST, 0)) as reserved:
        port = reserved.getsockname()[1]
    address = f"{HOST}:{port}"
    with (
        caplog.at_level(logging.WARNING, "pyrmq"),
        broker(tmp_path, namesrv_addr=address) as server,
    ):
        await_true(lambda: address in caplog.text)
        assert server.health()["registered"] == 0
        names = NameServer(
            listen_port=port, bind_address=HOST, kv_config_path=tmp_path / "kvConfig.json"
        )
        with names:
            await_true(lambda: server.health()["registered"] == 1, 25)
            cluster: Any = body_of(
                ask(names.address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            )
            assert "TBW102" in cluster["topicList"]


def test_a_broker_without_name_servers_serves(tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        create_topic(server.address, "alone")
        assert server.health()["name_servers"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broker_id": 1}, "brokerId"),
        ({"namesrv_addr": "nowhere"}, "namesrvAddr"),
        ({"broker_name": "a b"}, "brokerName"),
        ({"mapped_file_size_consume_queue": 30}, "mappedFileSizeConsumeQueue"),
        ({"delete_when": "25"}, "deleteWhen"),
        ({"broker_ip1": "nowhere"}, "brokerIP1"),
        ({"message_delay_level": "1x"}, "messageDelayLevel"),
        ({"listen_port": 1}, "listenPort"),
    ],
)
def test_a_value_that_only_the_core_can_refuse_names_its_key(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        broker(tmp_path, **options).start()


def test_options_are_shown_and_not_changed(tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        shown = ask(server.address, RequestCode.GET_BROKER_CONFIG)
        assert b"brokerName=broker-a\n" in (shown.body or b"")
        assert b"flushDiskType=ASYNC_FLUSH\n" in (shown.body or b"")
        assert json.loads(shown.fields["version"])["stateVersion"] == 0
        same = ask(server.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerId=0\n")
        assert same.code == 0
        other = ask(server.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerName=broker-b")
        assert other.code == 1
        assert "cannot be changed while the broker runs: brokerName" in str(other.remark)
        black = ask(server.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerConfigPath=/x")
        assert black.code == 16


def test_the_fast_port_answers_too(tmp_path: Path) -> None:
    with broker(tmp_path) as server:
        host, _, port = server.address.rpartition(":")
        answer = ask(f"{host}:{int(port) - 2}", RequestCode.GET_BROKER_CONFIG)
        assert answer.code == 0
