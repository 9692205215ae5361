"""Options that change while the broker serves, by request code 25, and the effect of each."""

from __future__ import annotations

import json
import logging
import os
import signal
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_broker_config import shown, update
from tests.e2e.wire import Connection, ask, await_true
from tests.interop.ours import OurProcess

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.codes import RequestCode
from pyrmq.config import BrokerOptions
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster(flush_interval_commit_log=60_000, mapped_file_size_commit_log=1 << 20) as one:
        yield one


def change(running: Cluster, **values: object) -> None:
    names = {item.name: item.apache for item in BrokerOptions.fields}
    text = "\n".join(f"{names[name]}={value}" for name, value in values.items())
    assert update(running.broker.address, text) == (0, "")


def send(address: str, topic: str, body: bytes = b"x", queue: int = 0) -> Any:  # noqa: ANN401 - a command of the core
    """Send by 310 without a client, so that only the broker's limits apply."""
    header = {
        "a": "group",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
    }
    return ask(address, RequestCode.SEND_MESSAGE_V2, header, body)


def test_every_option_of_the_store_that_can_change_is_live() -> None:
    fixed = {item.apache for item in BrokerOptions.fields if not item.live}
    assert not fixed & {
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceEnoughBytes",
        "diskSpaceMinFreeBytes",
        "diskSpaceWarningLevelRatio",
        "fileReservedTime",
        "flushConsumerOffsetInterval",
        "flushDiskType",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "logLevel",
        "maxMessageSize",
        "maxMsgsNumBatch",
        "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInMemory",
        "msgTraceTopicName",
        "traceOn",
        "traceTopicEnable",
    }


def test_the_size_of_messages_changes(running: Cluster, topic: str) -> None:
    address = running.broker.address
    change(running, max_message_size=1000)
    refused = send(address, topic, bytes(2000))
    assert refused.code == 13
    assert "1000" in (refused.remark or "")
    change(running, max_message_size=4 << 20)
    assert send(address, topic, bytes(2000)).code == 0


def test_the_size_of_answers_to_pulls_changes(running: Cluster, topic: str) -> None:
    address = running.broker.address
    for _ in range(8):
        assert send(address, topic, bytes(1000)).code == 0

    def pulled() -> int:
        fields = {
            "consumerGroup": "g",
            "topic": topic,
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
        }
        answer = ask(address, RequestCode.PULL_MESSAGE, fields)
        assert answer.code == 0, answer.remark
        return int(answer.fields["nextBeginOffset"])

    assert pulled() == 8
    change(running, max_transfer_count_on_message_in_memory=3)
    assert pulled() == 3
    change(
        running,
        max_transfer_count_on_message_in_memory=1024,
        max_transfer_bytes_on_message_in_memory=5000,
    )
    assert 1 < pulled() < 8
    change(running, max_transfer_bytes_on_message_in_memory=4 << 20)
    assert pulled() == 8


def test_the_log_is_flushed_as_often_as_asked(running: Cluster, topic: str) -> None:
    def store() -> dict[str, Any]:
        return dict(running.broker.health()["store"])

    assert send(running.broker.address, topic).code == 0
    assert store()["flushed_offset"] < store()["max_physical_offset"]
    change(running, flush_interval_commit_log=10)
    await_true(lambda: store()["flushed_offset"] == store()["max_physical_offset"])
    change(running, flush_interval_commit_log=60_000)


def test_sends_wait_for_the_disk_from_the_change_on(running: Cluster, topic: str) -> None:
    address = running.broker.address

    def store() -> dict[str, Any]:
        return dict(running.broker.health()["store"])

    assert store()["durability"] == "memory"
    change(running, flush_disk_type="SYNC_FLUSH")
    # Nothing else flushes: the interval is a minute.
    assert store()["flushed_offset"] == store()["max_physical_offset"]
    assert send(address, topic).code == 0
    assert store()["durability"] == "local"
    assert store()["flushed_offset"] == store()["max_physical_offset"]
    change(running, flush_disk_type="ASYNC_FLUSH")
    assert send(address, topic).code == 0
    assert store()["flushed_offset"] < store()["max_physical_offset"]


def test_no_message_is_lost_or_doubled_while_the_flush_type_changes(
    running: Cluster, topic: str
) -> None:
    ended, sent = Event(), [0, 0]
    with Admin(name_server=running.name_server) as admin:
        admin.create_topic(topic, queues=2)

    def write(queue: int) -> None:
        with Producer(name_server=running.name_server, send_timeout=20) as producer:
            while not ended.is_set():
                producer.send(topic, str(sent[queue]).encode(), queue=queue)
                sent[queue] += 1

    threads = [Thread(target=write, args=(queue,)) for queue in (0, 1)]
    for thread in threads:
        thread.start()
    for kind in ("SYNC_FLUSH", "ASYNC_FLUSH") * 4:
        before = sum(sent)
        change(running, flush_disk_type=kind)
        await_true(lambda before=before: sum(sent) > before + 20)
    ended.set()
    for thread in threads:
        thread.join()
    seen: dict[int, list[int]] = {0: [], 1: []}
    with PullConsumer(name_server=running.name_server, group="g", start="first") as consumer:
        consumer.subscribe(topic)
        while sum(map(len, seen.values())) < sum(sent):
            messages = consumer.poll(1000, timeout=10)
            assert messages
            for message in messages:
                seen[message.queue_id].append(int(message.body))
    assert seen == {queue: list(range(sent[queue])) for queue in (0, 1)}


def test_segments_go_as_soon_as_they_are_old_by_the_new_time(running: Cluster, topic: str) -> None:
    for _ in range(4):
        assert send(running.broker.address, topic, bytes(700_000)).code == 0
    hours = ";".join(str(hour) for hour in range(24))
    change(running, clean_resource_interval=20, delete_when=hours, flush_interval_commit_log=10)
    assert running.broker.health()["store"]["min_physical_offset"] == 0
    change(running, file_reserved_time=0)
    await_true(lambda: running.broker.health()["store"]["min_physical_offset"] > 0)
    change(running, clean_resource_interval=10_000, file_reserved_time=72, delete_when="04")
    change(running, flush_interval_commit_log=60_000)


def test_sends_are_refused_below_the_free_space_asked_for(running: Cluster, topic: str) -> None:
    address = running.broker.address
    change(running, disk_space_min_free_bytes=2**62)
    refused = send(address, topic)
    assert refused.code != 0
    assert "diskSpaceMinFreeBytes=4611686018427387904 forbids to write" in (refused.remark or "")
    assert "forbids to write" in running.broker.health()["store"]["read_only"]
    change(running, disk_space_min_free_bytes=0)
    assert send(address, topic).code == 0
    assert running.broker.health()["store"]["read_only"] is None


def test_traces_get_their_topic_and_clients_are_told_whether_to_trace(
    running: Cluster, topic: str
) -> None:
    address = running.broker.address
    change(running, trace_topic_enable="true", msg_trace_topic_name="ours_traces")
    await_true(lambda: running.names.route("ours_traces") is not None)
    assert send(address, topic).fields["TRACE_ON"] == "true"
    change(running, trace_on="false")
    assert send(address, topic).fields["TRACE_ON"] == "false"
    with PullConsumer(name_server=running.name_server, group="g", start="first") as consumer:
        consumer.subscribe(topic)
        assert [message.properties["TRACE_ON"] for message in consumer.poll(2, timeout=10)] == [
            "true",
            "false",
        ]
    code, remark = update(address, "msgTraceTopicName=../up")
    assert code != 0
    assert "msgTraceTopicName" in remark


def test_the_level_of_the_log_changes(
    running: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("pyrmq")
    before = logger.level
    try:
        change(running, log_level="error")
        assert logger.getEffectiveLevel() == logging.ERROR
        change(running, log_level="debug")

        def said() -> bool:
            with Connection(running.broker.address):
                pass
            return any("connection closed" in record.getMessage() for record in caplog.records)

        with caplog.at_level(logging.NOTSET):
            await_true(said)
        assert shown(running.broker.address)["logLevel"] == "debug"
    finally:
        change(running, log_level="warning")
        logger.setLevel(before)


@pytest.fixture
def hearing_sighup() -> Iterator[None]:
    """Handle SIGHUP: under nohup, programs that the tests start would ignore it too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class _Both(OurProcess):
    """`pyrmq server` with property files for both servers."""

    def __init__(self) -> None:
        super().__init__("server")
        self.files = {name: self.work_dir / name for name in ("broker.conf", "names.conf")}
        self.files["broker.conf"].write_text("namesrvAddr=10.0.0.1:9876\nbrokerPermission=6\n")
        self.files["names.conf"].write_text("listenPort=1\n")
        self._arguments = [
            *("-c", "broker.conf", "--name-server-config", "names.conf"),
            *("--listen-port", "0", "--name-server-port", "0", "--store", "store"),
        ]

    def reload(self, name: str, text: str) -> None:
        self.files[name].write_text(text)
        os.kill(self.pid, signal.SIGHUP)


@pytest.mark.usefixtures("hearing_sighup")
def test_sighup_has_both_servers_of_one_process_read_their_files_again() -> None:
    with _Both() as both:
        broker, names = str(both.ready["broker"]), str(both.ready["name_server"])
        both.reload("broker.conf", "namesrvAddr=10.0.0.2:9876\nlistenPort=9\nfileReservedTime=5\n")
        # Options set on the command line stay, and do not prevent other changes.
        await_true(lambda: shown(broker)["fileReservedTime"] == "5")
        both.reload("names.conf", "listenPort=2\nmaxBrokers=7\n")

        def most() -> str:
            answer = ask(names, RequestCode.GET_NAMESRV_CONFIG)
            return dict(line.split("=", 1) for line in (answer.body or b"").decode().splitlines())[
                "maxBrokers"
            ]

        await_true(lambda: most() == "7")
        both.reload("broker.conf", "brokerName=another\nfileReservedTime=6\n")
        await_true(lambda: "stays as it is" in both.log.read_text())
        assert shown(broker)["fileReservedTime"] == "5"
        assert json.dumps(shown(broker)["brokerName"]) != '"another"'
        assert both.alive
        assert both.stop() == 0
