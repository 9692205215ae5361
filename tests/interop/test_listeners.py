"""Our consumers on the real broker: retries, locks, filters, broadcasting, and mqadmin on them."""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from pyrmq import (
    Admin,
    DeadLetter,
    Producer,
    PullConsumer,
    PushConsumer,
    ReconsumeLater,
    _core,
)
from tests.e2e.test_large_properties import send_full
from tests.interop.driver import bodies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyrmq import ReceivedMessage
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver, Row

PAIRS = (("java", "JSON"),)


def until(condition: Callable[[], bool], seconds: float = 40.0) -> None:
    """Wait for a condition.

    Raises:
        AssertionError: it did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def send(cluster: Cluster, topic: str, count: int, start: int = 0) -> None:
    """Send numbered messages, each with its number as a property."""
    with Producer(name_server=cluster.namesrv) as producer:
        for number in range(start, start + count):
            producer.send(topic, str(number), properties={"a": str(number)})


def make_readable(cluster: Cluster, dead_letters: str) -> None:
    """Permit reading dead letters, which brokers before 4.9.2 do not."""
    if cluster.broker_version == "4.6.1":
        with Admin(name_server=cluster.namesrv) as admin:
            admin.create_topic(dead_letters, queues=1)


def test_a_message_comes_again_from_the_real_broker_and_ends_as_a_dead_letter(
    cluster: Cluster, topic: str
) -> None:
    send(cluster, topic, 4)
    group = f"{topic}-group"
    tries: dict[str, list[ReceivedMessage]] = defaultdict(list)

    def listener(message: ReceivedMessage) -> None:
        body = message.body.decode()
        tries[body].append(message)
        if body == "0":
            raise ReconsumeLater(delay_level=1)
        if body == "1":
            raise DeadLetter("never")

    consumer = PushConsumer(name_server=cluster.namesrv, group=group, max_tries=1, rebalance=1.0)
    consumer.subscribe(topic, listener)
    with consumer:
        until(lambda: len(tries["0"]) == 2 and len(tries) == 4)
        until(lambda: consumer.stats()["dead"] == 2)
        assert consumer.stats()["later"] == 1
    first, second = tries["0"]
    assert (second.topic, second.message_id) == (topic, first.message_id)
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    dead: list[bytes] = []
    make_readable(cluster, f"%DLQ%{group}")
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-looks") as looker:
        until(lambda: bool(looker.queues(f"%DLQ%{group}")))
        looker.subscribe(f"%DLQ%{group}")
        deadline = time.monotonic() + 20
        while len(dead) < 2 and time.monotonic() < deadline:
            dead += [one.body for one in looker.poll(timeout=1.0)]
    assert sorted(dead) == [b"0", b"1"]


def test_a_message_with_full_properties_ends_as_a_dead_letter_of_the_real_broker(
    cluster: Cluster, topic: str
) -> None:
    """Java's consumers give it back every 5 s for ever: no broker has room for what it adds."""
    length = send_full(cluster.namesrv, topic, small="s")
    group = f"{topic}-group"
    seen: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> None:
        seen.append(message)
        raise ValueError("poison")

    consumer = PushConsumer(name_server=cluster.namesrv, group=group, max_tries=1, rebalance=1.0)
    consumer.subscribe(topic, listener)
    with consumer:
        until(lambda: consumer.stats()["dead"] == 1)
    assert [len(message.properties["p"]) for message in seen] == [length, length]
    make_readable(cluster, f"%DLQ%{group}")
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-looks") as looker:
        until(lambda: bool(looker.queues(f"%DLQ%{group}")))
        looker.subscribe(f"%DLQ%{group}")
        (dead,) = looker.poll(timeout=20)
    assert (dead.body, dead.keys, dead.properties["small"]) == (b"body", ["k"], "s")
    assert "p" not in dead.properties


def test_queues_are_locked_on_the_real_broker(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 200)
    running: Counter[int] = Counter()
    seen: dict[int, list[int]] = defaultdict(list)
    overlaps: list[int] = []

    def listener(message: ReceivedMessage) -> None:
        queue = message.queue_id
        running[queue] += 1
        if running[queue] > 1:
            overlaps.append(queue)
        seen[queue].append(int(message.body))
        running[queue] -= 1

    group = f"{topic}-group"
    members = [
        PushConsumer(name_server=cluster.namesrv, group=group, order="queue", rebalance=1.0)
        for _ in range(2)
    ]
    for member in members:
        member.subscribe(topic, listener)
        member.start()
    until(lambda: sum(map(len, seen.values())) >= 200)
    for member in members:
        member.close()
    assert not overlaps
    assert sum(map(len, seen.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in seen.values())


def test_the_real_broker_evaluates_our_condition(cluster: Cluster, topic: str) -> None:
    send(cluster, topic, 60)
    seen: set[str] = set()
    consumer = PushConsumer(name_server=cluster.namesrv, group=f"{topic}-group")
    consumer.subscribe(
        topic, lambda one: seen.add(one.body.decode()), sql="a BETWEEN 20 AND 29 OR a = 50"
    )
    wanted = {"50", *map(str, range(20, 30))}
    with consumer:
        until(lambda: len(seen) >= len(wanted))
    assert seen == wanted
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-polls") as polls:
        polls.subscribe(topic, sql="a > 57")
        found: set[bytes] = set()
        deadline = time.monotonic() + 20
        while len(found) < 2 and time.monotonic() < deadline:
            found |= {one.body for one in polls.poll(timeout=1.0)}
    assert found == {b"58", b"59"}


def test_a_broadcasting_member_goes_on_where_java_stopped_and_the_other_way_round(
    driver: Driver, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Both sides read the other's offsets.json."""
    group = f"{topic}-group"
    send(cluster, topic, 12)
    name = f"{topic}-member"
    start = {"namesrv": cluster.namesrv, "topic": topic, "group": group, "broadcast": True}
    driver.call("push.start", id=name, **start)
    assert len(driver.pushed(name, 12)) == 12
    # A stop does not wait until the offsets follow the listener's last calls.
    until(lambda: driver.call("push.state", id=name, topic=topic)["offsets"] == 12)
    driver.call("push.stop", id=name)
    (theirs,) = driver.work_dir.rglob(f"{group}/offsets.json")
    rows = _core.decode_local_offsets(theirs.read_bytes())
    assert sum(offset for (where, _, _), offset in rows if where == topic) == 12

    def ours() -> PushConsumer:
        return PushConsumer(
            name_server=cluster.namesrv,
            group=group,
            broadcasting=True,
            instance_name=name,
            offset_dir=tmp_path,
        )

    client_id = ours()._control.client_id()
    mine = tmp_path / client_id / group / "offsets.json"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(theirs.read_bytes())
    send(cluster, topic, 5, 12)
    seen: Counter[str] = Counter()
    consumer = ours()
    consumer.subscribe(topic, lambda one: seen.update([one.body.decode()]))
    with consumer:
        until(lambda: len(seen) >= 5)
    assert seen == Counter(map(str, range(12, 17)))

    theirs.write_bytes(mine.read_bytes())
    send(cluster, topic, 3, 17)
    driver.call("push.start", id=name, **start)
    assert sorted(bodies(driver.pushed(name, 3))) == [b"17", b"18", b"19"]
    driver.call("push.stop", id=name)


@pytest.mark.parametrize("flag", ["", "-s"])
def test_mqadmin_shows_our_consumer(
    driver: Driver, cluster: Cluster, topic: str, flag: str
) -> None:
    send(cluster, topic, 1)
    began, release = threading.Event(), threading.Event()

    def waits_for_release(_: bytes) -> None:
        began.set()
        release.wait(60)

    group = f"{topic}-group"
    consumer = PushConsumer(name_server=cluster.namesrv, group=group)
    consumer.subscribe(topic, waits_for_release)
    with consumer:
        assert began.wait(20)
        client_id = consumer._control.client_id()
        output = driver.mqadmin(
            f"consumerStatus -n {cluster.namesrv} -g {group} -i {client_id} {flag}"
        )
        release.set()
    for wanted in ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY", topic, "#Consumer MQ Detail#"):
        assert wanted in output, output
    assert ("waits_for_release" in output) == (flag == "-s")


@pytest.mark.parametrize("consumes", ["push", "pull"])
def test_java_reads_the_traces_of_our_calls(
    driver: Driver, cluster: Cluster, topic: str, consumes: str
) -> None:
    traces = f"{topic}-traces"
    where = {"namesrv": cluster.namesrv, "broker": cluster.broker}
    driver.call("admin.createTopic", topic=traces, queues=1, **where)
    with Producer(name_server=cluster.namesrv) as producer:
        sent = producer.send(topic, "body", keys="order-42")
    group = f"{topic}-group"
    options = {"name_server": cluster.namesrv, "group": group, "trace": True}
    if consumes == "push":
        consumer = PushConsumer(**options, trace_topic=traces)  # type: ignore[arg-type]
        consumer.subscribe(topic, lambda _: None)
        with consumer:
            until(lambda: consumer.stats()["done"] == 1)
    else:
        with PullConsumer(**options, trace_topic=traces) as puller:  # type: ignore[arg-type]
            puller.subscribe(topic)
            assert len(puller.poll(timeout=20.0)) == 1
    rows: list[Row] = []
    with PullConsumer(name_server=cluster.namesrv, group=f"{topic}-looks") as looker:
        looker.subscribe(traces)
        deadline = time.monotonic() + 20
        while len(rows) < 2 and time.monotonic() < deadline:
            for message in looker.poll(timeout=1.0):
                body = base64.b64encode(message.body).decode()
                rows += driver.call("trace.decode", body=body)["contexts"]
    before, after = sorted(rows, key=lambda row: str(row["type"]), reverse=True)
    assert (before["type"], after["type"]) == ("SubBefore", "SubAfter")
    assert before["msgId"] == after["msgId"] == sent.message_id
    assert before["keys"] == after["keys"] == "order-42"
    assert (before["group"], after["success"]) == (group, True)
