"""Options of a running name server: changed by requests, also concurrent, and kept by a restart."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import Connection, ask

from pyrmq import NameServer
from pyrmq.cli import main
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError
from pyrmq.server.options.properties import amended, parse

if TYPE_CHECKING:
    from pyrmq._core import Command

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "headers.json"


def change(server: NameServer, text: str) -> Command:
    return ask(server.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())


def shown(server: NameServer) -> dict[str, str]:
    body = ask(server.address, RequestCode.GET_NAMESRV_CONFIG).body or b""
    return parse(body.decode())


def test_a_change_by_request_holds_after_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(
        f"# ours since 2019\nlistenPort = 0\nkvConfigPath={tmp_path}/kv.json\n"
        "enableTopicList=true\nnobodyReadsThis=1\n"
    )
    with NameServer.from_file(file) as server:
        assert change(server, "enableTopicList=false\nmaxBrokers=7\n").code == 0
    text = file.read_text()
    assert text.startswith("# ours since 2019\nlistenPort = 0\n")
    assert "nobodyReadsThis=1" in text
    assert text.count("enableTopicList") == 1
    with NameServer.from_file(file) as again:
        assert again.options.enable_topic_list is False
        assert again.options.max_brokers == 7


def test_a_change_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\n")
    with NameServer.from_file(file) as server:
        file.unlink()
        answer = change(server, "enableTopicList=false\n")
        assert answer.code == 1
        assert "namesrv.conf" in str(answer.remark)
        assert server.options.enable_topic_list is True


def test_what_holds_from_the_start_is_not_written_either(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    text = f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\n"
    file.write_text(text)
    with NameServer.from_file(file) as server:
        with pytest.raises(ConfigError, match="scan_not_active_broker_interval; start it again"):
            server.reconfigure({"scan_not_active_broker_interval": 7, "max_brokers": 7})
        assert server.options.max_brokers != 7
    assert file.read_text() == text


def test_of_two_operators_at_once_none_loses_a_change(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\n")
    rounds = 40
    refused: list[str] = []
    with NameServer.from_file(file) as server:
        start = threading.Barrier(2)

        def operator(key: str) -> None:
            with Connection(server.address) as connection:
                start.wait()
                for number in range(1, rounds + 1):
                    body = f"{key}={number}\n".encode()
                    answer = connection.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
                    mine = connection.ask(RequestCode.GET_NAMESRV_CONFIG).body or b""
                    if answer.code != 0 or parse(mine.decode())[key] != str(number):
                        refused.append(f"{key}={number}: {answer.code} {answer.remark}")

        keys = ("maxBrokers", "waitSecondsForService")
        threads = [threading.Thread(target=operator, args=(key,)) for key in keys]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == []
    assert {key: parse(file.read_text())[key] for key in keys} == dict.fromkeys(keys, str(rounds))


def test_a_value_of_another_type_is_left_aside_and_the_others_hold(tmp_path: Path) -> None:
    with NameServer(listen_port=0, kv_config_path=str(tmp_path / "kv.json")) as server:
        answer = change(server, "waitSecondsForService=soon\nenableTopicList=false\n")
        assert answer.code == 0
        assert "`waitSecondsForService` is 'soon'" in str(answer.remark)
        assert server.options.enable_topic_list is False
        assert server.options.wait_seconds_for_service == 45


def test_every_key_that_apache_shows_is_shown(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())
    file = tmp_path / "namesrv.conf"
    file.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\nproductEnvName=east\n")
    with NameServer.from_file(file) as server:
        ours = shown(server)
        for version in recorded.values():
            assert set(version["config"]) - set(ours) == set()
        assert ours["productEnvName"] == "east"
        assert ours["serverSelectorThreads"] == "3"
        assert change(server, "productEnvName=west\n").code == 0
        assert shown(server)["productEnvName"] == "west"
    assert parse(file.read_text())["productEnvName"] == "west"


def test_amended_text_keeps_comments_and_continued_lines() -> None:
    text = "! top\na=1\\\n  2\n\nb : 3\na=4\n# end\n"
    assert amended(text, {"b": "5"}) == "! top\na=1\\\n  2\n\nb=5\na=4\n# end\n"
    assert amended(text, {"a": "6", "c": "ü"}) == "! top\n\nb : 3\na=6\n# end\nc=\\u00fc\n"
    assert amended("", {"a": "1"}) == "a=1\n"


def test_the_name_server_of_both_in_one_process_takes_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("maxBrokers=7\nenableTopicList=false\n")
    monkeypatch.setenv("PYRMQ_NAMESERVER_MAX_BROKERS", "5")
    store = str(tmp_path / "store")
    words = ["server", "-p", "--store", store, "--name-server-config", str(file)]
    assert main(words) == 0
    names, _, broker = capsys.readouterr().out.partition("# the broker\n")
    told = parse(names)
    assert (told["maxBrokers"], told["enableTopicList"]) == ("5", "false")
    assert told["kvConfigPath"] == f"{store}/namesrv/kvConfig.json"
    assert parse(broker)["storePathRootDir"] == store
