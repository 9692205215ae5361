"""The pulling consumer on a running cluster."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from pyrmq import (
    Admin,
    ClosedError,
    ConfigError,
    NameServerUnreachable,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueId,
    ReceivedMessage,
    TopicNotFound,
)
from pyrmq.testing import Cluster, cluster


def fill(address: str, topic: str, count: int, **extras: str) -> None:
    with Producer(name_server=address) as producer:
        producer.send_batch(topic, map(str, range(count)), **extras)  # type: ignore[arg-type]


def take(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    while len(found) < count:
        messages = consumer.poll(count - len(found), timeout=10)
        assert messages, f"only {len(found)} of {count} messages came"
        found += messages
    return found


def test_a_new_group_reads_everything_once(address: str, topic: str) -> None:
    fill(address, topic, 3000)
    with PullConsumer(name_server=address, group="all") as consumer:
        consumer.subscribe(topic)
        bodies = [int(message.body) for message in take(consumer, 3000)]
        assert consumer.poll(timeout=0.05) == []
    assert sorted(bodies) == list(range(3000))


def test_iteration_gives_messages_one_by_one(address: str, topic: str) -> None:
    fill(address, topic, 10)
    with PullConsumer(name_server=address, group="iterate") as consumer:
        consumer.subscribe(topic)
        seen = []
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 10:
                break
    assert len(set(seen)) == 10


def test_a_group_goes_on_where_it_closed(address: str, topic: str) -> None:
    fill(address, topic, 100)
    with PullConsumer(name_server=address, group="again") as consumer:
        consumer.subscribe(topic)
        first = {message.body for message in take(consumer, 60)}
    with PullConsumer(name_server=address, group="again") as consumer:
        consumer.subscribe(topic)
        second = {message.body for message in take(consumer, 40)}
    assert len(first | second) == 100


def test_after_an_exception_the_last_messages_come_again(address: str, topic: str) -> None:
    fill(address, topic, 2)

    def work() -> None:
        with PullConsumer(name_server=address, group="broken") as consumer:
            consumer.subscribe(topic)
            for message in consumer:
                if int(message.body) == 1:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with PullConsumer(name_server=address, group="broken") as consumer:
        consumer.subscribe(topic)
        assert [message.body for message in take(consumer, 1)] == [b"1"]


def test_commit_tells_the_broker(address: str, topic: str) -> None:
    fill(address, topic, 10)
    with PullConsumer(name_server=address, group="commits", auto_commit=None) as consumer:
        consumer.subscribe(topic)
        take(consumer, 10)
        queues = consumer.assignment()
        assert {consumer.committed(queue) for queue in queues} == {None}
        consumer.commit()
        assert sum(consumer.committed(queue) or 0 for queue in queues) == 10
        assert [consumer.position(q) for q in queues] == [consumer.bounds(q)[1] for q in queues]
    with Admin(name_server=address) as admin:
        progress = admin.consumer_progress("commits", topic)
        assert "commits" in admin.groups(topic)
    assert sum(queue.committed for queue in progress.values()) == 10
    assert {queue.lag for queue in progress.values()} == {0}


def test_tags_are_filtered_to_the_letter(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        # The two tags have the same Java hash: the broker passes both, the client does not.
        for tag in ("Aa", "BB", "new"):
            producer.send(topic, tag, tags=tag)
    with PullConsumer(name_server=address, group="tags") as consumer:
        consumer.subscribe(topic, "Aa || new")
        assert sorted(message.body for message in take(consumer, 2)) == [b"Aa", b"new"]
        assert consumer.poll(timeout=0.05) == []


def test_a_message_that_comes_later_ends_the_wait(address: str, topic: str) -> None:
    fill(address, topic, 1)
    with (
        PullConsumer(name_server=address, group="waits") as consumer,
        Producer(name_server=address) as producer,
    ):
        consumer.subscribe(topic)
        take(consumer, 1)
        sender = threading.Timer(0.2, producer.send, (topic, b"late"))
        sender.start()
        begin = time.monotonic()
        assert [message.body for message in consumer.poll(timeout=10)] == [b"late"]
        assert time.monotonic() - begin < 5
        sender.join()


def test_seek_goes_anywhere(address: str, topic: str) -> None:
    fill(address, topic, 20)
    with PullConsumer(name_server=address, group="seeks") as consumer:
        queue = next(queue for queue in consumer.queues(topic) if consumer.bounds(queue)[1] == 20)
        consumer.assign([queue])
        assert [m.queue_offset for m in take(consumer, 20)] == list(range(20))
        consumer.seek(queue, 15)
        assert [m.queue_offset for m in take(consumer, 5)] == list(range(15, 20))
        consumer.seek(queue, "first")
        assert take(consumer, 1)[0].queue_offset == 0
        consumer.seek(queue, "last")
        assert consumer.poll(timeout=0.05) == []
        consumer.seek(queue, datetime.now(UTC) - timedelta(hours=1))
        assert take(consumer, 1)[0].queue_offset == 0


def test_assign_takes_queues_at_offsets(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        for number in range(8):
            producer.send(topic, str(number), queue=number % 2)
    with PullConsumer(name_server=address, group="assigns") as consumer:
        zero, one = consumer.queues(topic)[:2]
        consumer.assign({zero: 3, one: 1})
        assert sorted((m.queue_id, m.queue_offset) for m in take(consumer, 4)) == [
            (0, 3),
            (1, 1),
            (1, 2),
            (1, 3),
        ]
        consumer.assign([one])
        assert consumer.assignment() == [one]
        with pytest.raises(ConfigError, match="not assigned"):
            consumer.seek(zero, 0)


def test_a_group_can_begin_at_the_end(address: str, topic: str) -> None:
    fill(address, topic, 5)
    with PullConsumer(name_server=address, group="tail", start="last") as consumer:
        consumer.subscribe(topic)
        fill(address, topic, 1)
        assert [message.body for message in take(consumer, 1)] == [b"0"]


@pytest.mark.parametrize("kind", [PullConsumer, PushConsumer])
def test_a_group_can_begin_at_a_time(
    address: str, topic: str, kind: type[PullConsumer | PushConsumer]
) -> None:
    fill(address, topic, 20)
    with PullConsumer(name_server=address, group="looks", auto_commit=None) as looker:
        looker.subscribe(topic)
        last = max(message.store_timestamp for message in take(looker, 20))
    wait_for(lambda: time.time() * 1000 > last + 2)
    start = datetime.fromtimestamp((last + 1) / 1000, UTC)
    with Producer(name_server=address) as producer:
        for number in range(16):
            producer.send(topic, f"new {number}")
    wanted = {f"new {number}".encode() for number in range(16)}
    found: list[bytes] = []
    consumer = kind(name_server=address, group=f"time-{kind.__name__}", start=start)
    if isinstance(consumer, PullConsumer):
        with consumer:
            consumer.subscribe(topic)
            found = [message.body for message in take(consumer, 16)]
            assert consumer.poll(timeout=0.2) == []
    else:
        consumer.subscribe(topic, lambda message: found.append(message.body))
        with consumer:
            wait_for(lambda: len(found) >= 16)
    assert set(found) == wanted
    assert len(found) == 16


def test_a_subscription_has_begun_when_the_call_returns(address: str, topic: str) -> None:
    fill(address, topic, 5)
    for number in range(10):
        # Brokers notify the group of its new member: a second rebalance coincides with the first.
        with PullConsumer(name_server=address, group=f"begun-{number}", start="last") as consumer:
            consumer.subscribe(topic)
            assert min(consumer.position(queue) for queue in consumer.assignment()) >= 0


def test_two_members_share_the_queues(address: str, topic: str) -> None:
    fill(address, topic, 10)
    with PullConsumer(name_server=address, group="shares", rebalance=0.2) as one:
        one.subscribe(topic)
        everything = one.assignment()
        with PullConsumer(name_server=address, group="shares", rebalance=0.2) as two:
            two.subscribe(topic)
            wait_for(lambda: len(one.assignment()) + len(two.assignment()) == len(everything))
            assert set(one.assignment()).isdisjoint(two.assignment())
            assert len(one.assignment()) == len(two.assignment())
        wait_for(lambda: one.assignment() == everything)


def wait_for(condition: object, seconds: float = 10.0) -> None:
    """Poll until a condition holds."""
    assert callable(condition)
    done = threading.Event()
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come"
        done.wait(0.01)


def test_a_broker_that_restarts_is_found_again(topic: str) -> None:
    with cluster() as running:
        fill(running.name_server, topic, 3)
        with PullConsumer(name_server=running.name_server, group="patient") as consumer:
            consumer.subscribe(topic)
            take(consumer, 3)
            running.stop_broker()
            running.start_broker()
            fill(running.name_server, topic, 2)
            assert len(take(consumer, 2)) == 2


def test_an_unknown_topic_is_told(address: str) -> None:
    with (
        PullConsumer(name_server=address, group="unknown") as consumer,
        pytest.raises(TopicNotFound, match="nowhere"),
    ):
        consumer.subscribe("nowhere")


def test_no_name_server_is_told() -> None:
    with (
        PullConsumer(name_server="127.0.0.1:1", group="lonely") as consumer,
        pytest.raises(NameServerUnreachable, match=r"127\.0\.0\.1:1"),
    ):
        consumer.subscribe("orders")


def test_a_closed_consumer_says_so(address: str) -> None:
    consumer = PullConsumer(name_server=address, group="closed")
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(timeout=0)
    assert list(consumer) == []


def test_closing_wakes_a_poll_in_another_thread(address: str, topic: str) -> None:
    fill(address, topic, 1)
    consumer = PullConsumer(name_server=address, group="woken")
    consumer.subscribe(topic)
    take(consumer, 1)
    failures: list[Exception] = []

    def poll() -> None:
        try:
            consumer.poll(timeout=20)
        except ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    consumer.close()
    thread.join(timeout=15)
    assert not thread.is_alive()
    assert [type(failure) for failure in failures] == [ClosedError]


def test_a_poll_for_nothing_is_refused(address: str) -> None:
    with (
        PullConsumer(name_server=address, group="nothing") as consumer,
        pytest.raises(ConfigError, match="`max_messages` is 0"),
    ):
        consumer.poll(0)


def test_a_wrong_start_is_told(address: str) -> None:
    with pytest.raises(ConfigError, match="'first', 'last' or a datetime"):
        PullConsumer(name_server=address, group="g", start="middle")  # type: ignore[arg-type]


def test_queues_that_another_broker_gets_right_after_the_subscription_are_read(
    shared: Cluster, address: str, topic: str
) -> None:
    one, other = (broker.name for broker in shared.brokers)
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, brokers=[one])
        with PullConsumer(name_server=address, group=f"group-{topic}") as consumer:
            consumer.subscribe(topic)
            # Like two brokers that create a topic with the first messages: the second one is later.
            admin.create_topic(topic, brokers=[other])
            with Producer(name_server=address) as producer:
                sent = producer.send(topic, b"x", queue=QueueId(topic, other, 0))
            # Well below the 30 s between two updates of a known route.
            messages = consumer.poll(timeout=10)
    assert [message.message_id for message in messages] == [sent.message_id]
