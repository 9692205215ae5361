"""After `pyrmq log repair`, no group skips what takes the places of the lost messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.cli import main
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pyrmq.message import QueueId

SEGMENT = 256 * 1024


def consume(running: Cluster, topic: str, count: int) -> list[str]:
    """Return what the group gets until it has `count` messages; it commits them."""
    bodies: list[str] = []
    with PullConsumer(name_server=running.name_server, group="kitchen", start="first") as consumer:
        consumer.subscribe(topic)

        def has_all() -> bool:
            bodies.extend(bytes(message.body).decode() for message in consumer.poll(64, 0.5))
            return len(bodies) >= count

        await_true(has_all, 20)
        consumer.commit()
    return bodies


def damage(store: Path, body: bytes) -> None:
    (segment,) = [path for path in (store / "commitlog").iterdir() if body in path.read_bytes()]
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(body))
        file.write(b"DAMAGE")


def test_groups_and_delay_levels_get_what_comes_after_a_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        cluster(brokers=2, store=tmp_path, mapped_file_size_commit_log=SEGMENT) as running,
        Admin(name_server=running.name_server) as admin,
        Producer(name_server=running.name_server, compress_over_bytes=None) as producer,
    ):
        broker, other = running.brokers
        for topic in ("orders", "later"):
            admin.create_topic(topic, queues=1)

        def queue_of(topic: str, name: str) -> QueueId:
            (queue,) = [queue for queue in admin.topic_stats(topic) if queue.broker == name]
            return queue

        for number in range(40):
            producer.send("orders", f"old {number}", queue=queue_of("orders", broker.name))
            producer.send("orders", f"other {number}", queue=queue_of("orders", other.name))
        for number in range(10):
            late = f"late {number}"
            producer.send("later", late, queue=queue_of("later", broker.name), delay_level=1)
        assert len(consume(running, "orders", 80)) == 80
        assert len(consume(running, "later", 10)) == 10
        broker.stop()
        damage(broker.store, b"old 20")
        assert main(["log", "repair", str(broker.store), "--choice", "cut"]) == 0
        broker.start()
        broker.await_registration()
        progress = admin.consumer_progress("kitchen", "orders")
        assert progress[queue_of("orders", broker.name)].committed == 20
        assert progress[queue_of("orders", other.name)].committed == 40
        for number in range(30):
            producer.send("orders", f"new {number}", queue=queue_of("orders", broker.name))
        for number in range(10):
            late = f"late again {number}"
            producer.send("later", late, queue=queue_of("later", broker.name), delay_level=1)
        expected = [f"new {number}" for number in range(30)]
        assert consume(running, "orders", 30) == expected
        assert sorted(consume(running, "later", 10)) == [f"late again {n}" for n in range(10)]
    capsys.readouterr()
