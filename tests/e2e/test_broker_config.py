"""Options of a running broker: request codes 25 and 26, `Broker.reconfigure`, SIGHUP."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from tests.e2e.kill import Known, Senders, check, read_all
from tests.e2e.wire import ask, await_true
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import Admin, Broker, Producer
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError, PermissionDenied, RmqError
from pyrmq.server.options.properties import parse, read
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq.testing import Cluster


GOLDEN = Path(__file__).parent.parent / "golden" / "broker_config.json"
NOT_SHOWN = {"rocketmqHome", "storePathCommitLog"}
"""Where Apache is installed; and a key without a default, which the recorded broker had set."""


def update(address: str, text: str) -> tuple[int, str]:
    answer = ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    return answer.code, answer.remark or ""


def shown(address: str) -> dict[str, str]:
    answer = ask(address, RequestCode.GET_BROKER_CONFIG)
    assert answer.code == 0
    return parse((answer.body or b"").decode())


def from_file(folder: Path, text: str) -> Broker:
    (folder / "broker.conf").write_text(text)
    return Broker.from_file(
        folder / "broker.conf",
        listen_port=0,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        store_path_root_dir=str(folder / "store"),
    )


def test_a_change_holds_at_once_and_name_servers_are_told(topic: str) -> None:
    with (
        cluster() as running,
        Producer(name_server=running.name_server, send_timeout=1.0) as producer,
    ):
        producer.send(topic, b"x", timeout=20)
        address = running.broker.address
        assert update(address, "brokerPermission=4") == (0, "")
        with pytest.raises((PermissionDenied, RmqError)):
            producer.send(topic, b"x")
        route = running.names.route

        def writable() -> bool:
            found = route(topic)
            assert found is not None
            return bool(found.queues[0].perm & 2)

        await_true(lambda: not writable())
        running.broker.reconfigure({"broker_permission": 6})
        await_true(writable)
        assert shown(address)["brokerPermission"] == "6"
        with Producer(name_server=running.name_server) as other:
            other.send(topic, b"x")


@pytest.mark.timeout(120)
def test_a_permission_that_changes_while_topics_are_made_reaches_the_name_servers() -> None:
    with cluster() as running, Admin(name_server=running.name_server) as admin:
        for number in range(200):
            topic, permission = f"made-{number}", 4 if number % 2 else 6
            maker = Thread(target=admin.create_topic, args=(topic,))
            maker.start()
            running.broker.reconfigure({"broker_permission": permission})
            maker.join()
            await_true(partial(has_permission, running, topic, permission))


def has_permission(running: Cluster, topic: str, permission: int) -> bool:
    route = running.names.route(topic)
    return route is not None and route.queues[0].perm == permission


def test_automatic_topics_can_be_turned_off_and_on(topic: str) -> None:
    with cluster() as running:

        def send(name: str, timeout: float) -> None:
            with Producer(name_server=running.name_server, send_timeout=timeout) as producer:
                producer.send(name, b"x")

        running.broker.reconfigure({"auto_create_topic_enable": False})
        with pytest.raises(RmqError):
            send(topic, 1.0)
        running.broker.reconfigure({"auto_create_topic_enable": True})
        send(topic, 20.0)


def test_what_holds_from_the_start_is_refused_by_its_key() -> None:
    with cluster() as running:
        code, remark = update(running.broker.address, "brokerPermission=4\nlistenPort=1234")
        assert code == 1
        assert "listenPort" in remark
        assert "while the broker runs" in remark
        assert shown(running.broker.address)["brokerPermission"] == "6"
        with pytest.raises(ConfigError, match="broker_name"):
            running.broker.reconfigure({"broker_name": "other"})
        with pytest.raises(ConfigError, match="broker_permission"):
            running.broker.reconfigure({"broker_permission": 99})


def test_tools_find_the_keys_that_they_read() -> None:
    with cluster() as running:
        keys = shown(running.broker.address)
        assert (keys["brokerRole"], keys["enablePropertyFilter"]) == ("ASYNC_MASTER", "false")
        assert keys["listenPort"] == running.broker.address.rpartition(":")[2]
        # Keys of Apache's that are no options here are shown too.
        recorded = json.loads(GOLDEN.read_text(encoding="utf-8"))
        assert len(recorded["keys"]) > 400
        missing = set(recorded["keys"]) - keys.keys()
        assert missing == NOT_SHOWN, f"{recorded['version']} shows them"


def test_changes_survive_a_restart_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    with from_file(tmp_path, "# ours\nbrokerPermission = 6\nbrokerName=b\n") as broker:
        assert update(broker.address, "brokerPermission=4\ntransactionCheckMax=3") == (0, "")
    text = (tmp_path / "broker.conf").read_text()
    assert text == "# ours\nbrokerPermission=4\nbrokerName=b\ntransactionCheckMax=3\n"
    with from_file(tmp_path, text) as broker:
        options = broker.options
        assert (options.broker_permission, options.transaction_check_max) == (4, 3)


def test_a_line_that_goes_on_in_the_next_one_stays_whole(tmp_path: Path) -> None:
    text = "brokerName=b\nnote=one\\\n  brokerPermission=6\nlast=yes\n"
    with from_file(tmp_path, text) as broker:
        broker.reconfigure({"broker_permission": 4})
    changed = (tmp_path / "broker.conf").read_text()
    assert changed == text + "brokerPermission=4\n"


def test_a_file_that_makes_no_sense_any_more_changes_nothing(tmp_path: Path) -> None:
    with from_file(tmp_path, "brokerName=b\n") as broker:
        (tmp_path / "broker.conf").write_text("note=\\u12\n")
        with pytest.raises(ConfigError, match="four hexadecimal digits"):
            broker.reconfigure({"broker_permission": 4})
        assert broker.options.broker_permission == 6
        assert shown(broker.address)["brokerPermission"] == "6"


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    changes = {
        "autoCreateTopicLimit": "101",
        "autoCreateGroupLimit": "102",
        "transactionCheckMax": "103",
        "transactionTimeOut": "104",
        "shortPollingTimeMills": "105",
        "transactionCheckInterval": "106",
    }
    with from_file(tmp_path, "brokerName=b\n") as broker:
        threads = [
            Thread(target=update, args=(broker.address, f"{key}={value}"))
            for key, value in changes.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert changes.items() <= shown(broker.address).items()
    assert changes.items() <= read(tmp_path / "broker.conf").items()


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    with from_file(tmp_path, "brokerName=b\n") as broker:
        (tmp_path / "broker.conf").unlink()
        with pytest.raises(OSError, match=r"broker\.conf"):
            broker.reconfigure({"broker_permission": 4})
        assert broker.options.broker_permission == 6


@pytest.fixture
def hearing_sighup() -> Iterator[None]:
    """Handle SIGHUP: under nohup, programs that the tests start would ignore it too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hearing_sighup")
def test_sighup_reads_the_file_again() -> None:
    with OurNameServer() as names, OurBroker(names.address) as broker:
        config = broker.work_dir / "broker.conf"

        def reload(text: str, holds: Callable[[dict[str, str]], bool]) -> None:
            config.write_text(text)
            os.kill(broker.pid, signal.SIGHUP)
            await_true(lambda: holds(shown(broker.address)))

        before = config.read_text()
        reload(
            f"{before}brokerPermission=4\n",
            lambda keys: keys["brokerPermission"] == "4",
        )
        # One key that cannot be changed prevents all changes, and the broker keeps running.
        config.write_text(f"{before}brokerPermission=6\nlistenPort=1\n")
        os.kill(broker.pid, signal.SIGHUP)
        reload(
            f"{before}brokerPermission=4\ntransactionCheckMax=7\n",
            lambda keys: keys["transactionCheckMax"] == "7",
        )
        assert shown(broker.address)["brokerPermission"] == "4"
        assert broker.alive


@pytest.mark.usefixtures("hearing_sighup")
def test_sighup_under_load_fails_no_send_and_loses_no_acknowledged_message() -> None:
    known, refused = Known(), 0
    with OurNameServer() as names, OurBroker(names.address) as broker:
        await_registered(names.address, broker.address)
        config = broker.work_dir / "broker.conf"
        before = config.read_text()
        senders = Senders(names.address, known, 0)
        try:
            for number in range(10):
                senders.await_acknowledged(senders.acknowledged + 50, 20)
                changed = {
                    "fileReservedTime": f"{50 + number}",
                    "flushIntervalCommitLog": f"{400 + number}",
                    "hotLogBytes": f"{(64 + number) << 20}",
                    "transactionCheckMax": f"{10 + number}",
                }
                text = before + "".join(f"{key}={value}\n" for key, value in changed.items())
                is_good = number % 2 == 0
                config.write_text(text if is_good else f"{text}listenPort=1\n")
                os.kill(broker.pid, signal.SIGHUP)
                if is_good:
                    await_true(partial(has, broker.address, changed))
                else:
                    refused += 1
                    await_true(partial(has_refused, broker, refused))
            senders.await_acknowledged(senders.acknowledged + 50, 20)
        finally:
            senders.end()
        assert known.doubtful == set()
        assert len(known.stored) > 500
        check(known, read_all(names.address))
        assert shown(broker.address)["fileReservedTime"] == "58", "of the last good file"


def has(address: str, wanted: dict[str, str]) -> bool:
    return wanted.items() <= shown(address).items()


def has_refused(broker: OurBroker, times: int) -> bool:
    return broker.log.read_text().count("stays as it is") == times
