"""What other programs and the broker do while `pyrmq store snapshot` copies."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.snapshots import OPTIONS, stored
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer, SimpleConsumer, _core
from pyrmq.cli import main
from pyrmq.cli.log.directory import StoreDirectory, Units
from pyrmq.cli.store import hold, taking
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq.message import QueueId
    from pyrmq.testing.members import ClusterBroker

TOPIC = "orders"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Cluster]:
    often = OPTIONS | {"flush_consumer_offset_interval": 200}
    with cluster(brokers=2, store=tmp_path / "live", **often) as found:  # type: ignore[arg-type]
        yield found


def queues_of(running: Cluster, broker: ClusterBroker, topic: str = TOPIC) -> list[QueueId]:
    with PullConsumer(name_server=running.name_server, group="q", auto_commit=None) as consumer:
        there = [queue for queue in consumer.queues(topic) if queue.broker == broker.name]
    return sorted(there, key=lambda queue: queue.queue_id)


def send_to(running: Cluster, queue: QueueId, bodies: list[str]) -> None:
    with Producer(name_server=running.name_server, compress_over_bytes=None) as producer:
        for body in bodies:
            producer.send(TOPIC, body, queue=queue)


def written(store: Path, topic: str, queue_id: int) -> int:
    """How many entries the files of a queue have."""
    with Units(StoreDirectory(str(store))) as units:
        return units.count(topic, queue_id, 0)


def behind(monkeypatch: pytest.MonkeyPatch, part: str, action: Callable[[], None]) -> None:
    """Run an action once, after the first file whose path contains a part was copied."""
    real = taking.Taking._copy_if_there
    done: list[Path] = []

    def copy_and_act(self: taking.Taking, source: Path, target: Path) -> None:
        real(self, source, target)
        if part in str(source) and not done:
            done.append(source)
            action()

    monkeypatch.setattr(taking.Taking, "_copy_if_there", copy_and_act)


def snapshot_and_restore(store: Path, place: Path) -> Path:
    """Where the restored store is, below a directory that a cluster takes."""
    assert main(["store", "snapshot", str(store), str(place / "kept")]) == 0
    assert main(["store", "restore", str(place / "kept"), str(place / "again" / "store")]) == 0
    return place / "again"


def test_a_store_that_another_tool_has_locked_is_copied_after_it(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in two.brokers:
        broker.stop()
        lock = _core.StoreLock(broker.store / "lock")
        released = threading.Event()

        def release(lock: _core.StoreLock = lock, released: threading.Event = released) -> None:
            time.sleep(0.3)
            released.set()
            lock.release()

        real = taking.Taking.run
        seen: list[bool] = []

        def run(
            self: taking.Taking,
            released: threading.Event = released,
            seen: list[bool] = seen,
            real: Callable[[taking.Taking], taking.Snapshot | None] = real,
        ) -> taking.Snapshot | None:
            seen.append(released.is_set())
            return real(self)

        with monkeypatch.context() as patch:
            patch.setattr(taking.Taking, "run", run)
            other = threading.Thread(target=release)
            other.start()
            target = tmp_path / f"of-{broker.name}"
            assert main(["store", "snapshot", str(broker.store), str(target)]) == 0
            other.join()
        assert seen == [True]
        # It was held to the end: a start on the copy continues where the broker stopped.
        assert not (target / "abort").exists()


def test_a_store_that_stays_locked_is_refused(
    two: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hold, "WAIT_SECONDS", 0.1)
    store = two.brokers[1].store
    two.brokers[1].stop()
    lock = _core.StoreLock(store / "lock")
    assert main(["store", "snapshot", str(store), str(tmp_path / "kept")]) == 2
    told = capsys.readouterr().err
    assert "`pyrmq log repair`" in told
    assert "try again" in told
    assert not (tmp_path / "kept").exists()
    lock.release()
    # The first broker runs and has its store locked, too.
    assert main(["store", "snapshot", str(two.store), str(tmp_path / "kept")]) == 0


def test_a_broker_that_stops_and_starts_meanwhile_loses_nothing_in_the_copy(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic(TOPIC, queues=2)
    for broker in two.brokers:
        first, second = queues_of(two, broker)
        send_to(two, first, ["before 0"])
        send_to(two, second, ["before 1"])
        await_true(lambda store=broker.store: written(store, TOPIC, 0) == 1, 10)
        real = taking.Taking.run

        def run(
            self: taking.Taking,
            broker: ClusterBroker = broker,
            real: Callable[[taking.Taking], taking.Snapshot | None] = real,
        ) -> taking.Snapshot | None:
            # It ran when the command began.
            broker.stop()
            return real(self)

        def start_and_send(
            broker: ClusterBroker = broker, first: QueueId = first, second: QueueId = second
        ) -> None:
            broker.start()
            broker.await_registration()
            send_to(two, first, [f"during {number} 0" for number in range(50)])
            send_to(two, second, [f"during {number} 1" for number in range(50)])
            await_true(lambda: written(broker.store, TOPIC, 1) == 51, 10)

        with monkeypatch.context() as patch:
            patch.setattr(taking.Taking, "run", run)
            behind(patch, f"consumequeue/{TOPIC}/0", start_and_send)
            again = snapshot_and_restore(broker.store, tmp_path / broker.name)
        assert (again / "store" / "abort").exists()
        assert "system" not in (again / "store" / "abort").read_text()
        with cluster(store=again, **OPTIONS) as restored:  # type: ignore[arg-type]
            assert len(stored(restored)) == 102


def test_a_copy_without_the_lock_is_recovered_and_names_no_system(
    two: Cluster, tmp_path: Path
) -> None:
    broker = two.brokers[0]
    assert "system" in (broker.store / "abort").read_text()
    assert main(["store", "snapshot", str(broker.store), str(tmp_path / "kept")]) == 0
    lines = (tmp_path / "kept" / "abort").read_text().splitlines()
    assert [line for line in lines if line.startswith("system")] == []
    assert [line for line in lines if line.startswith("queue files of")] != []


def test_what_was_popped_and_acknowledged_does_not_come_again_from_a_copy(tmp_path: Path) -> None:
    options = OPTIONS | {"flush_consumer_offset_interval": 3_600_000}
    live = tmp_path / "live"
    with cluster(store=live, **options) as running:  # type: ignore[arg-type]
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(TOPIC, queues=1)
        (queue,) = queues_of(running, running.brokers[0])
        send_to(running, queue, ["first"])
        pop_and_acknowledge(running, 1)
        # The offsets are written now, and not again before the copy.
        running.stop_broker()
        running.start_broker()
        send_to(running, queue, [str(number) for number in range(40)])
        pop_and_acknowledge(running, 40)
        # A start counts what is younger than a second as written with the offsets.
        time.sleep(1.2)
        again = snapshot_and_restore(running.store, tmp_path)
        name = Path("config", "consumerOffset.json")
        times = [(at / name).stat().st_mtime_ns for at in (running.store, again / "store")]
        assert times[0] == times[1]
    with (
        cluster(store=again, **options) as restored,  # type: ignore[arg-type]
        SimpleConsumer(name_server=restored.name_server, group="bar") as consumer,
    ):
        consumer.subscribe(TOPIC)
        assert consumer.receive(max_messages=32, invisible=30.0, wait=1) == []


def pop_and_acknowledge(running: Cluster, count: int) -> None:
    with SimpleConsumer(name_server=running.name_server, group="bar") as consumer:
        consumer.subscribe(TOPIC)
        taken = 0

        def is_done() -> bool:
            nonlocal taken
            messages = consumer.receive(max_messages=32, invisible=30.0, wait=1)
            if messages:
                consumer.ack(messages)
            taken += len(messages)
            return taken >= count

        await_true(is_done, 20)


@pytest.mark.parametrize("again", [True, False], ids=["made again", "deleted"])
def test_a_topic_deleted_meanwhile_is_as_new_in_the_copy(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic(TOPIC, queues=1)
    for broker in two.brokers:
        (queue,) = queues_of(two, broker)
        send_to(two, queue, [f"old {number}" for number in range(20)])
    with PullConsumer(name_server=two.name_server, group="kitchen", start="first") as consumer:
        consumer.subscribe(TOPIC)
        taken: list[object] = []

        def has_all() -> bool:
            taken.extend(consumer.poll(64, 0.5))
            return len(taken) == 40

        await_true(has_all, 20)
        consumer.commit()
    broker = two.brokers[1]
    offsets = broker.store / "config" / "consumerOffset.json"
    await_true(lambda: offsets.exists() and "orders@kitchen" in offsets.read_text(), 10)
    await_true(lambda: written(broker.store, TOPIC, 0) == 20, 10)

    def delete() -> None:
        with Admin(name_server=two.name_server) as admin:
            admin.delete_topic(TOPIC)
            if again:
                admin.create_topic(TOPIC, queues=1)
        if again:
            (queue,) = queues_of(two, broker)
            send_to(two, queue, [f"new {number}" for number in range(30)])
            await_true(lambda: written(broker.store, TOPIC, 0) == 30, 10)

    with monkeypatch.context() as patch:
        behind(patch, f"consumequeue/{TOPIC}/0", delete)
        place = snapshot_and_restore(broker.store, tmp_path)
    with (
        cluster(store=place, broker_name="broker-b", **OPTIONS) as restored,  # type: ignore[arg-type]
        Admin(name_server=restored.name_server) as admin,
    ):
        if not again:
            assert TOPIC not in admin.topics()
            admin.create_topic(TOPIC, queues=1)
            assert stored(restored) == {}
            return
        assert sorted(stored(restored)) == sorted(f"new {number}" for number in range(30))
        progress = admin.consumer_progress("kitchen", TOPIC).values()
        assert [offset.committed for offset in progress if offset.committed] == []


def test_delayed_messages_that_are_delivered_meanwhile_come_once_from_the_copy(
    two: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic(TOPIC, queues=1)
    broker = two.brokers[0]
    (queue,) = queues_of(two, broker)

    def send_delayed() -> None:
        with Producer(name_server=two.name_server, compress_over_bytes=None) as producer:
            for number in range(30):
                producer.send(TOPIC, str(number), queue=queue, delay_level=1)

        def are_delivered() -> bool:
            with Admin(name_server=two.name_server) as admin:
                return admin.topic_stats(TOPIC)[queue].last == 30

        await_true(are_delivered, 20)

    behind(monkeypatch, "timerwheel", send_delayed)
    place = snapshot_and_restore(broker.store, tmp_path)
    with (
        cluster(store=place, **OPTIONS) as restored,  # type: ignore[arg-type]
        Admin(name_server=restored.name_server) as admin,
    ):
        with Producer(name_server=restored.name_server, compress_over_bytes=None) as producer:
            producer.send(TOPIC, "behind them", delay_level=1)

        def last() -> int:
            (stats,) = admin.topic_stats(TOPIC).values()
            return stats.last

        # A level delivers in order.
        await_true(lambda: last() > 30, 20)
        assert last() == 31
        assert set(stored(restored)) == {str(number) for number in range(30)} | {"behind them"}
