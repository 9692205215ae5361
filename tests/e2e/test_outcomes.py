"""Unknown or not stored: the outcome of each way of sending if the broker or its link fails."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.relay import BROKER_IP, relayed
from tests.e2e.ways import FORMS, WAYS

from pyrmq import Producer, PullConsumer, RmqError, SendResult, TransactionProducer, aio
from pyrmq.errors import Attempt, BatchSendError, RouteError
from pyrmq.message import SendStatus
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.reference.frame import Frame

    from pyrmq.testing import Cluster

ANSWERED = [way for way in WAYS if way != "send_oneway"]
KEYED = {"send by key"}
HALF = {"send_in_transaction"}


class Way:
    """The path of answers from the broker: answers to sends can be lost, with their connections."""

    def __init__(self) -> None:
        self._losses = 0
        self._lock = threading.Lock()

    def __call__(self, answer: Frame) -> Frame | None:
        """Pass an answer, or lose it."""
        with self._lock:
            lost = self._losses > 0
            self._losses -= lost
        return None if lost else answer

    def lose(self, answers: int) -> None:
        """Lose the next `answers` answers."""
        with self._lock:
            self._losses = answers


@pytest.fixture(scope="module")
def bad() -> Iterator[tuple[Cluster, Way]]:
    """A cluster whose broker is reached over an unreliable path, shared by all tests here."""
    way = Way()
    with relayed(way) as running:
        yield running, way


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Each form of the producer."""
    return FORMS[request.param]


def held(address: str, topic: str, count: int) -> list[tuple[bytes, str]]:
    """Wait for `count` messages of a topic; return body and unique id of all messages then."""
    found: list[tuple[bytes, str]] = []
    with PullConsumer(name_server=address, group=f"held-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, found
            found += [(message.body, message.message_id) for message in messages]
        found += [(message.body, message.message_id) for message in consumer.poll(timeout=0.1)]
    return found


def error_of(caught: BaseException) -> Any:  # noqa: ANN401 - it has what the test looks for
    """Return the error of the only message."""
    return caught.results[0] if isinstance(caught, BatchSendError) else caught


def assert_told_of(error: RmqError, topic: str, attempts: int | None = None) -> None:
    """Check the error's message, destination and attempts."""
    known = (error.topic, error.broker)
    assert known == (topic, "broker-a"), (known, error)
    assert error.queue_id is not None
    assert error.message_id is not None
    assert len(error.message_id) == 32
    assert attempts in {None, len(error.attempts)}, error.attempts
    assert all(attempt.broker == "broker-a" for attempt in error.attempts)
    assert all(attempt.took >= 0 and attempt.cause for attempt in error.attempts)
    assert error.may_exist == any(attempt.may_exist for attempt in error.attempts)
    for part in (error.message_id, topic, "broker-a", error.attempts[-1].cause):
        assert part in str(error), part


def test_an_answer_that_is_lost_leaves_the_outcome_unknown_whichever_way_it_was_sent(
    bad: tuple[Cluster, Way], topic: str, form: Callable[..., Any]
) -> None:
    running, way = bad
    with form(name_server=running.name_server, retries=0, send_timeout=5) as ways:
        ways["send"](topic, b"first")
        ways["send_in_transaction"](topic, b"first half")
        for name in ANSWERED:
            way.lose(1)
            with pytest.raises(RmqError) as caught:
                ways[name](topic, name)
            error = error_of(caught.value)
            assert error.may_exist, (name, error)
            assert "unknown" in str(error), (name, error)
            assert_told_of(error, topic, attempts=1)
            way.lose(0)
            # The path is good again, and so is the producer.
            ways["send"](topic, b"after")
    found = held(running.name_server, topic, 2 * len(ANSWERED))
    bodies = [body.decode() for body, _ in found if body not in {b"first", b"after"}]
    # Each exists once; no consumer can read the half message.
    assert sorted(bodies) == sorted(set(ANSWERED) - HALF)


def test_another_attempt_says_that_it_may_be_a_duplicate_and_bears_the_same_id(
    bad: tuple[Cluster, Way], topic: str, form: Callable[..., Any]
) -> None:
    running, way = bad
    again = ["send", "send_async", "produce", "send_batch"]
    with form(name_server=running.name_server, retries=2, send_timeout=5) as ways:
        ways["send"](topic, b"first")
        for name in again:
            way.lose(1)
            result = ways[name](topic, name)
            result = result[0] if isinstance(result, list) else result
            assert isinstance(result, SendResult)
            assert (result.attempts, result.may_be_duplicate) == (2, True), (name, result)
            (attempt,) = result.failed_attempts
            assert isinstance(attempt, Attempt)
            assert (attempt.number, attempt.broker, attempt.may_exist) == (1, "broker-a", True)
            assert 0 <= attempt.queue_id < 8, attempt
            assert BROKER_IP in attempt.cause, attempt
            assert pickle.loads(pickle.dumps(result)) == copy.copy(result) == result
            assert "may_be_duplicate" in repr(result), result
        for name in ("send by key", "send_in_transaction"):
            way.lose(1)
            with pytest.raises(RmqError) as caught:
                ways[name](topic, name)
            # Neither an ordered message nor a transaction may be doubled.
            assert error_of(caught.value).may_exist
    found = held(running.name_server, topic, 2 * len(again) + 2)
    for name in again:
        ids = [message_id for body, message_id in found if body == name.encode()]
        assert len(ids) == 2, name
        assert len(set(ids)) == 1, name
    assert [body for body, _ in found].count(b"send by key") == 1


def test_a_broker_that_nobody_reaches_stored_nothing_whichever_way_it_was_sent(
    topic: str, form: Callable[..., Any]
) -> None:
    with (
        cluster() as running,
        form(name_server=running.name_server, send_timeout=0.3) as ways,
    ):
        ways["send"](topic, b"first", timeout=20)
        running.stop_broker()
        for name in ANSWERED:
            with pytest.raises(RmqError) as caught:
                ways[name](topic, name, **({"timeout": 0.3} if name == "request" else {}))
            error = error_of(caught.value)
            assert not error.may_exist, (name, error)
            assert_told_of(error, topic)
        running.start_broker()
        assert held(running.name_server, topic, 1)[0][0] == b"first"


def test_a_callback_of_a_lost_answer_and_a_close_meanwhile_get_the_same_error(
    bad: tuple[Cluster, Way], topic: str
) -> None:
    running, way = bad
    told: list[Any] = []
    with Producer(name_server=running.name_server, retries=0, linger=30) as producer:
        producer.send(topic, b"first")
        way.lose(1)
        for number in range(10):
            producer.produce(topic, str(number), lambda error, _: told.append(error))
        # Closing sends the batch, whose answer is lost.
    way.lose(0)
    assert len(told) == 10
    assert {error.may_exist for error in told} == {True}
    found = held(running.name_server, topic, 11)
    # Each error is about its message, not its batch: an unknown message can be looked up by its id.
    ids = {message_id for body, message_id in found if body != b"first"}
    assert {error.message_id for error in told} == ids
    assert len(found) == 11


def test_the_local_transaction_does_not_run_for_a_half_that_may_be_stored(
    bad: tuple[Cluster, Way], topic: str
) -> None:
    running, way = bad
    ran: list[object] = []
    options: dict[str, Any] = {"name_server": running.name_server, "group": topic}
    with TransactionProducer(check=lambda _: 1 // 0, **options) as producer:  # type: ignore[arg-type, return-value]
        producer.send(topic, b"first")
        producer._request_reply.heartbeat(topic, 3000)
        way.lose(1)
        with pytest.raises(RmqError) as caught:
            producer.send_in_transaction(topic, b"half", lambda half: ran.append(half))
        assert error_of(caught.value).may_exist
    way.lose(0)
    assert not ran


def test_statistics_count_retries_and_batches_and_name_the_broker_in_trouble(
    bad: tuple[Cluster, Way], topic: str
) -> None:
    running, way = bad
    with Producer(
        name_server=running.name_server, latency_fault=True, start_detector=True, linger=30
    ) as producer:
        producer.send(topic, b"first")
        assert producer.stats().brokers == ()
        way.lose(1)
        assert producer.send(topic, b"again").attempts == 2
        for number in range(100):
            producer.produce(topic, str(number))
        waiting = producer.stats()
        assert (waiting.in_flight, waiting.in_flight_bytes) == (100, 190)
        assert producer.flush()
        stats = producer.stats()
    assert (stats.confirmed, stats.failed, stats.retries) == (102, 0, 1)
    assert (stats.in_flight, stats.in_flight_bytes) == (0, 0)
    assert (stats.batched, stats.batch_size) == (100, 100 / stats.batches)
    assert stats.frames == stats.batches + 3, "the lone ones, one of them twice"
    assert stats.per_second == stats.confirmed / stats.seconds
    (trouble,) = stats.brokers
    # Its connection broke, which counts as slow; the next attempt reached it.
    assert (trouble.broker, trouble.reachable) == ("broker-a", True)
    assert trouble.left_out_ms > 0


def test_closing_the_asynchronous_form_in_time_reports_what_was_not_sent(
    topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(running: Cluster) -> None:
        producer = aio.Producer(name_server=running.name_server, send_timeout=20)
        await producer.send(topic, b"x", queue=0)
        running.stop_broker()
        future = await producer.produce(topic, b"y", queue=0)
        task = asyncio.ensure_future(producer.send(topic, b"z", queue=0))
        await asyncio.sleep(0)
        await producer.close(timeout=0.05)
        errors = await asyncio.gather(future, task, return_exceptions=True)
        assert all(isinstance(error, RmqError) for error in errors), errors

    with cluster() as running, caplog.at_level(logging.WARNING, "pyrmq.aio.producer"):
        asyncio.run(asyncio.wait_for(main(running), 25))
    assert "2 messages unconfirmed" in caplog.text


def in_a_pool(address: str, topic: str, queue: int) -> tuple[SendResult, list[SendResult]]:
    with Producer(name_server=address, send_timeout=5) as producer:
        one = producer.send(topic, b"x", queue=queue)
        return one, producer.send_batch(topic, [b"y", b"z"])


def test_results_and_errors_come_back_from_a_pool_of_processes(address: str, topic: str) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        one, (y, z) = pool.submit(in_a_pool, address, topic, 1).result(timeout=60)
        assert (one.topic, one.queue_id, one.status) == (topic, 1, SendStatus.SEND_OK)
        assert z.queue_offset == y.queue_offset + 1
        assert len({one.message_id, y.message_id, z.message_id}) == 3
        with pytest.raises(RouteError) as caught:
            pool.submit(in_a_pool, address, topic, 99).result(timeout=60)
    error = caught.value
    assert (error.topic, error.may_exist) == (topic, False)
    assert str(error.message_id) in str(error)
