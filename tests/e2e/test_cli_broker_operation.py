"""`pyrmq broker config` and `drain`, and a rolling restart of two brokers under load."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    Broker,
    Producer,
    PushConsumer,
    RmqError,
    TransactionProducer,
    TransactionState,
)
from pyrmq.cli import main
from pyrmq.codes import RequestCode
from pyrmq.errors import CommitError
from pyrmq.message import QueueId
from pyrmq.remoting import Client
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq import ReceivedMessage


@pytest.fixture
def two() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


def can_commit(consumer: PushConsumer) -> bool:
    """Commit; False while a broker does not answer."""
    try:
        consumer.commit()
    except CommitError:
        return False
    return True


def can_send(producer: Producer, place: QueueId) -> bool:
    """Send; False while name servers do not offer the queue."""
    try:
        producer.send(place.topic, b"x", queue=place)
    except RmqError:
        return False
    return True


@contextmanager
def busy_kitchen(running: Cluster) -> Iterator[threading.Event]:
    """Run a group `kitchen` whose first message of `orders` takes until the event is set."""
    started, go = threading.Event(), threading.Event()

    def work(message: ReceivedMessage) -> None:
        del message
        started.set()
        go.wait(20)

    consumer = PushConsumer(name_server=running.name_server, group="kitchen", start="first")
    consumer.subscribe("orders", work)
    with consumer:
        await_true(lambda: started.is_set())
        yield go


def pyrmq(running: Cluster, *words: str) -> int:
    at = ["-n", running.name_server]
    return main(["broker", *words, *at])


def test_options_of_running_brokers(two: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert pyrmq(two, "config", "get", "brokerPermission", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["broker"], row["value"]) for row in rows] == [("broker-a", "6"), ("broker-b", "6")]
    change = ["config", "set", "fileReservedTime=48", "storeMaxBytes=1000000", "--broker"]
    assert pyrmq(two, *change, "broker-b") == 0
    assert [one.server.options.file_reserved_time for one in two.brokers] == [72, 48]
    assert two.brokers[1].server.options.store_max_bytes == 1_000_000
    capsys.readouterr()

    assert pyrmq(two, "config", "set", "listenPort=1234", "fileReservedTime=1") == 1
    said = capsys.readouterr().out
    assert "broker-a changed nothing" in said
    assert "cannot be changed while the broker runs: listenPort" in said
    assert [one.server.options.file_reserved_time for one in two.brokers] == [72, 48]

    assert pyrmq(two, "config", "set", "fileReservedTim=1") == 1
    assert "did you mean `fileReservedTime`?" in capsys.readouterr().out
    assert pyrmq(two, "config", "get", "noSuch") == 2
    assert pyrmq(two, "config", "get", "--broker", "broker-x") == 2
    assert "broker-a, broker-b" in capsys.readouterr().err
    assert pyrmq(two, "config", "set", "fileReservedTime") == 2


def test_changes_reach_the_property_file_but_not_the_black_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nfileReservedTime = 70\nconfigBlackList=storeMaxBytes\n", "utf-8")
    with cluster() as running:
        broker = Broker.from_file(
            file,
            listen_port=0,
            broker_name="filed",
            bind_address="127.0.0.1",
            broker_ip1="127.0.0.1",
            namesrv_addr=running.name_server,
            store_path_root_dir=str(tmp_path / "store"),
        )
        with broker:
            broker.await_registration()
            chosen = ["--broker", "filed"]
            assert pyrmq(running, "config", "set", "fileReservedTime=10", *chosen) == 0
            assert "fileReservedTime=10" in file.read_text("utf-8")
            assert "# mine" in file.read_text("utf-8")
            capsys.readouterr()
            for pair in ("storeMaxBytes=1", "configBlackList="):
                assert pyrmq(running, "config", "set", pair, *chosen) == 1
                assert "black list" in capsys.readouterr().out
            assert broker.options.store_max_bytes == 0


def test_drain_waits_for_members_and_names_what_stays(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(name_server=two.name_server) as admin, Client() as client:
        admin.create_topic("orders", queues=1)
        place = QueueId("orders", "broker-a", 0)
        with Producer(name_server=two.name_server) as producer:
            for number in range(20):
                producer.send("orders", f"{number}", queue=place)
            producer.send("orders", b"later", queue=place, delay_level=18)
        fields = {"consumerGroup": "gone", "topic": "orders", "queueId": "0", "commitOffset": "5"}
        client.ask(two.brokers[0].address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        with busy_kitchen(two) as go:
            words = ["drain", "--broker", "broker-a", "--json", "--timeout"]
            capsys.readouterr()
            assert pyrmq(two, *words, "0.3") == 1
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            stays = {(row["what"], row["name"]): row["messages"] for row in rows}
            assert stays[("consumer group", "kitchen")] == 20
            assert stays[("consumer group without members", "gone")] == 15
            assert stays[("messages of delay levels", "-")] == 1
            with Producer(name_server=two.name_server, retries=0) as producer:
                assert producer.send("orders", b"x").broker == "broker-b"
                with pytest.raises(RmqError):
                    producer.send("orders", b"x", queue=place)
            go.set()
            assert pyrmq(two, *words, "60") == 1
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert {row["what"] for row in rows} == {
                "consumer group without members",
                "messages of delay levels",
            }
        assert pyrmq(two, "drain", "--broker", "broker-a", "--back") == 0
        with Producer(name_server=two.name_server) as producer:
            await_true(lambda: can_send(producer, place))


def test_drain_names_timer_messages_and_open_transactions(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def undecided(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("orders", queues=1, brokers=["broker-a"])
    words = ["drain", "--broker", "broker-a", "--timeout", "0.1", "--json"]
    with TransactionProducer(
        name_server=two.name_server, group="payments", check=undecided
    ) as producer:
        for _ in range(2):
            producer.send_in_transaction("orders", b"pay", undecided)
        paid = producer.send_in_transaction("orders", b"pay", lambda _: TransactionState.COMMIT)
        assert paid.confirmed
        for _ in range(3):
            producer.send("orders", b"later", delay=3600)
        assert pyrmq(two, *words) == 1
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {(row["what"], row["name"]): row["messages"] for row in rows} == {
            ("timer messages", "-"): 3,
            ("messages of open transactions", "-"): 2,
        }
        assert pyrmq(two, *words[:-1]) == 1
        assert "these stay on the disk" in capsys.readouterr().out


def test_drain_waits_for_the_groups_that_it_names(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(name_server=two.name_server) as admin, Client() as client:
        admin.create_topic("orders", queues=1, brokers=["broker-a"])
        with Producer(name_server=two.name_server) as producer:
            for number in range(20):
                producer.send("orders", f"{number}")
        fields = {"topic": "orders", "queueId": "0", "commitOffset": "5"}
        for group in ("gone", "left"):
            of_group = {**fields, "consumerGroup": group}
            client.ask(two.brokers[0].address, RequestCode.UPDATE_CONSUMER_OFFSET, of_group)
        with busy_kitchen(two) as go:
            words = ["drain", "--broker", "broker-a", "--timeout", "0.3", "--groups"]
            waited = "the groups have not read everything"
            # Nobody waits for `kitchen`, which has members, nor for `left`.
            assert pyrmq(two, *words, "none,other") == 1
            said = capsys.readouterr().out
            assert "these stay on the disk" in said
            assert waited not in said
            assert all(group in said for group in ("kitchen", "gone", "left"))
            # A group without members is waited for if it is named.
            assert pyrmq(two, *words, "none,gone") == 1
            assert waited in capsys.readouterr().out
            fields["commitOffset"] = "20"
            for group in ("gone", "left"):
                of_group = {**fields, "consumerGroup": group}
                client.ask(two.brokers[0].address, RequestCode.UPDATE_CONSUMER_OFFSET, of_group)
            assert pyrmq(two, *words, "kitchen") == 1
            assert waited in capsys.readouterr().out
            go.set()
            words[words.index("0.3")] = "60"
            assert pyrmq(two, *words, "kitchen,gone") == 0
            assert "nothing is left: broker-a may be stopped" in capsys.readouterr().out


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_a_rolling_restart_under_load_loses_nothing(two: Cluster) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("orders", queues=2)
    stop = threading.Event()
    sent: list[str] = []
    took: list[float] = []
    brokers: list[str] = []
    failed: list[RmqError] = []
    seen: set[str] = set()

    def load() -> None:
        number = 0
        with Producer(name_server=two.name_server) as producer:
            while not stop.wait(0.002):
                began = time.monotonic()
                try:
                    result = producer.send("orders", f"{number}")
                except RmqError as error:
                    failed.append(error)
                else:
                    took.append(time.monotonic() - began)
                    sent.append(f"{number}")
                    brokers.append(result.broker)
                number += 1

    def work(message: ReceivedMessage) -> None:
        seen.add(message.body.decode())

    consumer = PushConsumer(name_server=two.name_server, group="kitchen", start="first")
    consumer.subscribe("orders", work)
    with consumer:
        sender = threading.Thread(target=load)
        sender.start()
        try:
            for broker in two.brokers:
                # As the page says: not before the producer sends to the other one again.
                await_true(lambda: set(brokers[-50:]) == {"broker-a", "broker-b"}, seconds=60)
                words = ["drain", "--broker", broker.name, "--timeout", "60"]
                assert pyrmq(two, *words) == 0
                broker.stop()
                mark = len(sent)
                await_true(lambda mark=mark: len(sent) > mark + 50)
                broker.start()
                assert pyrmq(two, "drain", "--broker", broker.name, "--back") == 0
        finally:
            stop.set()
            sender.join(60)
        # Consumers look at routes every 30 s: until then they miss the broker that did not answer.
        await_true(lambda: seen >= set(sent) and can_commit(consumer), seconds=60)
    assert failed == []
    assert max(took) < 1.0
    assert len(sent) > 200
