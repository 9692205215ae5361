"""Transactions and request-reply on our servers, with kills at every step."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import await_true
from tests.interop.jvm import free_port

from pyrmq import (
    Admin,
    BrokerError,
    ClosedError,
    ConfigError,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendResult,
    TopicNotFound,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyrmq.errors import RequestTimeout
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COMMIT, ROLLBACK, UNKNOWN = TransactionState
QUICK: dict[str, Any] = {
    "transaction_time_out": 100,
    "transaction_check_interval": 50,
    "transaction_check_max": 100_000,
}
"""The broker checks soon, and does not give up while a slow machine starts the next producer."""


def unasked(message: ReceivedMessage) -> TransactionState:
    raise AssertionError(f"asked about {message!r}")


def bodies(address: str, topic: str, count: int, *, still: float = 0.0) -> list[bytes]:
    """Read a topic until `count` messages arrived, and `still` seconds longer."""
    found: list[bytes] = []
    deadline = time.monotonic() + 20
    with PullConsumer(name_server=address, group=f"read-{topic}-{time.monotonic_ns()}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count and time.monotonic() < deadline:
            found += [message.body for message in consumer.poll(timeout=0.2)]
        if still:
            found += [message.body for message in consumer.poll(timeout=still)]
    return found


def test_a_message_appears_with_its_commit_and_not_with_its_rollback(
    address: str, topic: str
) -> None:
    halves: list[SendResult] = []

    def local(state: TransactionState) -> Callable[[SendResult], TransactionState]:
        def run(half: SendResult) -> TransactionState:
            halves.append(half)
            return state

        return run

    with TransactionProducer(check=unasked, name_server=address, group=f"g-{topic}") as producer:
        for body, state in ((b"one", COMMIT), (b"two", ROLLBACK)):
            result = producer.send_in_transaction(topic, body, local(state), keys="k", tags="t")
            assert (result.state, result.confirmed, result.half) == (state, True, halves[-1])
            assert result.half.transaction_id == result.half.message_id
        none = producer.send_in_transaction(topic, b"three", lambda _: None)
        assert none.state is COMMIT
    assert sorted(bodies(address, topic, 2)) == [b"one", b"three"]


def test_a_local_transaction_that_raises_stays_open_and_is_asked_about() -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return UNKNOWN if len(asked) < 2 else COMMIT

    def local(half: SendResult) -> TransactionState:
        raise LookupError(half.transaction_id)

    with (
        cluster(**QUICK) as running,
        TransactionProducer(check=check, group="g", name_server=running.name_server) as producer,
    ):
        with pytest.raises(LookupError) as caught:
            producer.send_in_transaction("T", b"x", local, keys="k", properties={"a": "b"})
        assert bodies(running.name_server, "T", 1, still=0.5) == [b"x"]
        assert len(asked) >= 2, "unknown, then commit"
    message = asked[-1]
    assert (message.topic, message.body, message.message_id) == (
        "T",
        b"x",
        str(caught.value.args[0]),
    )
    assert (message.keys, message.properties["a"]) == (["k"], "b")


def test_the_answer_to_the_last_check_counts() -> None:
    asked: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT

    # A pass each second: a producer that is asked in one has until the next to answer.
    once = {**QUICK, "transaction_check_max": 1, "transaction_check_interval": 1000}
    with (
        cluster(**once) as running,
        TransactionProducer(check=check, group="g", name_server=running.name_server) as producer,
    ):
        producer.send_in_transaction("T", b"x", lambda _: UNKNOWN)
        assert bodies(running.name_server, "T", 1, still=0.3) == [b"x"]
        assert len(asked) == 1


def test_what_was_given_up_can_be_read_as_soon_as_it_is() -> None:
    with (
        cluster(**{**QUICK, "transaction_check_max": 1}) as running,
        TransactionProducer(
            check=lambda _: UNKNOWN, group="g", name_server=running.name_server
        ) as producer,
    ):
        producer.send_in_transaction("T", b"x", lambda _: UNKNOWN)
        # Sooner than the broker's regular registration at the name server, every 30 s.
        deadline = time.monotonic() + 20
        found: list[bytes] = []
        while not found:
            assert time.monotonic() < deadline
            with contextlib.suppress(TopicNotFound):
                found = bodies(running.name_server, "TRANS_CHECK_MAX_TIME_TOPIC", 1)
        assert found == [b"x"]


def test_a_check_that_raises_or_says_nonsense_counts_as_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Any] = [LookupError("boom"), "yes", ROLLBACK]
    done = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        answer = answers.pop(0)
        if not answers:
            done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    with (
        cluster(**QUICK) as running,
        TransactionProducer(check=check, group="g", name_server=running.name_server) as producer,
    ):
        result = producer.send_in_transaction("T", b"x", lambda _: UNKNOWN)
        assert not result.confirmed
        assert done.wait(20)
        assert bodies(running.name_server, "T", 0, still=0.5) == []
    assert "boom" in caplog.text
    assert "must be a TransactionState" in caplog.text


def test_what_local_returns_must_be_a_state(address: str, topic: str) -> None:
    with (
        TransactionProducer(check=unasked, name_server=address, group=f"g-{topic}") as producer,
        pytest.raises(ConfigError, match="must be a TransactionState"),
    ):
        producer.send_in_transaction(topic, b"x", lambda _: True)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="must be a function"):
        TransactionProducer(check=None, group="g", name_server=address)  # type: ignore[arg-type]


def test_a_half_that_is_refused_runs_nothing() -> None:
    with (
        cluster(reject_transaction_message=True) as running,
        TransactionProducer(
            check=unasked, group="g", name_server=running.name_server, retries=0
        ) as producer,
        pytest.raises(BrokerError, match="rejectTransactionMessage"),
    ):
        producer.send_in_transaction("T", b"x", lambda _: pytest.fail("it ran"))


DYING = """
import os, signal, sys
from pyrmq import TransactionProducer, TransactionState
from pyrmq.message import SendResult
where, address = sys.argv[1:]
def local(half):
    if where == "in the local transaction":
        os.kill(os.getpid(), signal.SIGKILL)
    return TransactionState.COMMIT
producer = TransactionProducer(
    check=lambda m: TransactionState.UNKNOWN, name_server=address, group="dying"
)
if where == "before the commit":
    producer._end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
producer.send_in_transaction("T", where, local)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("where", "answer", "found"),
    [
        ("in the local transaction", ROLLBACK, 0),
        ("before the commit", COMMIT, 1),
        ("after the commit", COMMIT, 1),
    ],
)
def test_a_producer_may_die_at_any_point(where: str, answer: TransactionState, found: int) -> None:
    asked = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        assert message.body == where.encode()
        asked.set()
        return answer

    with cluster(**QUICK) as running:
        died = subprocess.run(
            [sys.executable, "-c", DYING, where, running.name_server],
            check=False,
            timeout=30,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert died.returncode == -signal.SIGKILL
        with TransactionProducer(
            check=check, topics=["T"], group="dying", name_server=running.name_server
        ):
            if where != "after the commit":
                assert asked.wait(20)
            assert len(bodies(running.name_server, "T", found, still=0.7)) == found


@contextmanager
def server(store: Path, port: int, names: int) -> Iterator[subprocess.Popen[str]]:
    """A `pyrmq server` process with quick checks; killed at the end."""
    config = store.parent / "broker.conf"
    config.write_text(
        "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
        "transactionTimeOut=100\ntransactionCheckInterval=50\ntransactionCheckMax=100000\n"
    )
    words = ["server", "-c", str(config), "--store", str(store), "--json"]
    words += ["--listen-port", str(port), "--name-server-port", str(names)]
    with subprocess.Popen(
        [sys.executable, "-m", "pyrmq", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        try:
            yield process
        finally:
            process.kill()


def test_the_broker_may_be_killed_while_transactions_run(tmp_path: Path) -> None:
    port, names = free_port(), free_port()
    address = f"127.0.0.1:{names}"
    states: dict[str, TransactionState] = {}
    certain: set[str] = set()

    def check(message: ReceivedMessage) -> TransactionState:
        return states.get(message.body.decode(), ROLLBACK)

    def local(body: str) -> Callable[[SendResult], TransactionState]:
        def run(_: SendResult) -> TransactionState:
            states[body] = COMMIT if int(body) % 3 else ROLLBACK
            # The check decides some ends.
            return UNKNOWN if int(body) % 5 == 0 else states[body]

        return run

    with TransactionProducer(
        check=check, group="g", name_server=address, send_timeout=20
    ) as producer:
        for round_ in range(3):
            with server(tmp_path / "store", port, names) as process:
                for number in range(round_ * 60, round_ * 60 + 60):
                    body = str(number)
                    result = producer.send_in_transaction("T", body, local(body))
                    if result.confirmed and result.state is COMMIT:
                        certain.add(body)
                process.kill()
        with server(tmp_path / "store", port, names):
            wanted = {body for body, state in states.items() if state is COMMIT}
            found = [body.decode() for body in bodies(address, "T", len(wanted), still=1.0)]
    assert sorted(found) == sorted(set(found)), "none appears twice"
    assert certain <= set(found), "what was confirmed is there"
    assert set(found) == wanted, "the checks have ended all others"


def test_requests_get_their_replies(address: str, topic: str) -> None:
    with (
        Producer(name_server=address, group=f"asker-{topic}") as producer,
        Producer(name_server=address, group="repliers") as replier,
        PullConsumer(name_server=address, group=f"answer-{topic}") as consumer,
    ):
        futures = [producer.request_async(topic, f"tea {n}", timeout=10) for n in range(20)]
        consumer.subscribe(topic)
        answered = 0
        while answered < 20:
            for message in consumer.poll(timeout=5):
                sent = replier.reply(message, message.body.upper(), keys="r")
                assert sent.topic == "DefaultCluster_REPLY_TOPIC"
                answered += 1
        replies = [future.result(10) for future in futures]
    assert [reply.body for reply in replies] == [f"TEA {n}".encode() for n in range(20)]
    assert replies[0].keys == ["r"]


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_no_callback_of_a_request_ends_the_thread_that_takes_replies(
    address: str, topic: str, kind: type[BaseException]
) -> None:
    def ends(_: object) -> None:
        raise kind("a callback that ends")

    called: list[object] = []
    with (
        Producer(name_server=address, group=f"asker-{topic}") as producer,
        Producer(name_server=address, group="repliers") as replier,
        PullConsumer(name_server=address, group=f"answer-{topic}") as consumer,
    ):
        late = producer.request_async(topic, "silence", timeout=0.2)
        late.add_done_callback(ends)
        late.add_done_callback(called.append)
        with pytest.raises(RequestTimeout):
            late.result(10)
        consumer.subscribe(topic)
        for number in range(2):
            future = producer.request_async(topic, f"tea {number}", timeout=10)
            future.add_done_callback(ends)
            future.add_done_callback(called.append)
            while not future.done():
                for message in consumer.poll(timeout=0.1):
                    if message.body != b"silence":
                        replier.reply(message, message.body.upper())
            assert future.result().body == f"TEA {number}".encode()
        await_true(lambda: len(called) == 3, 10)


def test_a_request_without_a_reply_times_out(address: str, topic: str) -> None:
    with Producer(name_server=address, group=f"asker-{topic}") as producer:
        began = time.monotonic()
        with pytest.raises(RequestTimeout, match="no reply came"):
            producer.request(topic, b"nobody listens", timeout=0.3)
        assert time.monotonic() - began < 5


def test_only_a_request_can_be_answered(address: str, topic: str) -> None:
    with (
        Producer(name_server=address) as producer,
        PullConsumer(name_server=address, group=f"plain-{topic}") as consumer,
    ):
        producer.send(topic, b"x")
        consumer.subscribe(topic)
        with pytest.raises(ConfigError, match="is not a request"):
            producer.reply(next(iter(consumer)), b"y")


def test_closing_fails_the_calls_that_wait_for_a_reply(address: str, topic: str) -> None:
    producer = Producer(name_server=address, group=f"asker-{topic}")
    future = producer.request_async(topic, b"x", timeout=60)
    producer.close()
    with pytest.raises(ClosedError):
        future.result(5)


def test_aio_asks_and_answers(address: str, topic: str) -> None:
    with Admin(name_server=address) as admin:
        # Create it on every broker before it is read: a reader checks for new brokers every 30 s.
        admin.create_topic(topic)

    async def main() -> None:
        async with (
            aio.Producer(name_server=address, group=f"asker-{topic}") as producer,
            aio.Producer(name_server=address, group="aio-repliers") as replier,
            aio.PullConsumer(name_server=address, group=f"aio-{topic}") as consumer,
        ):
            with pytest.raises(RequestTimeout):
                await producer.request(topic, b"nobody listens", timeout=0.2)
            requests = [
                asyncio.ensure_future(producer.request(topic, f"tea {n}", timeout=10))
                for n in range(10)
            ]
            await consumer.subscribe(topic)
            answered = 0
            while answered < 11:
                for message in await consumer.poll(timeout=5):
                    with contextlib.suppress(BrokerError):
                        await replier.reply(message, message.body.upper())
                    answered += 1
            replies = await asyncio.gather(*requests)
            assert [reply.body for reply in replies] == [f"TEA {n}".encode() for n in range(10)]

    asyncio.run(asyncio.wait_for(main(), 25))


def test_aio_transactions_end_as_said_by_functions_and_by_coroutines(
    address: str, topic: str
) -> None:
    async def later(half: SendResult) -> TransactionState:
        await asyncio.sleep(0)
        return ROLLBACK if half.transaction_id is None else COMMIT

    async def nothing(_: SendResult) -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        async with aio.TransactionProducer(
            check=unasked, name_server=address, group=topic
        ) as producer:
            ends: dict[bytes, Any] = {
                b"function": lambda _: COMMIT,
                b"none": lambda _: None,
                b"refused": lambda _: ROLLBACK,
                b"coroutine": later,
                b"coroutine of none": nothing,
            }
            for body, local in ends.items():
                result = await producer.send_in_transaction(topic, body, local, keys="k")
                assert result.confirmed
                assert result.state is (ROLLBACK if body == b"refused" else COMMIT)
            with pytest.raises(ConfigError, match="must be a TransactionState"):
                await producer.send_in_transaction(topic, b"nonsense", lambda _: "yes")  # type: ignore[arg-type, return-value]

    asyncio.run(asyncio.wait_for(main(), 25))
    found = bodies(address, topic, 4, still=0.2)
    assert sorted(found) == [b"coroutine", b"coroutine of none", b"function", b"none"]


@pytest.mark.parametrize("form", ["function", "coroutine"])
def test_aio_checks_answer_for_transactions_of_an_earlier_process(form: str) -> None:
    asked: list[bytes] = []
    answered = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        if min(asked.count(b"yes"), asked.count(b"no")) > 1:
            answered.set()
        if asked.count(message.body) == 1:
            raise RuntimeError("asked too early")
        return COMMIT if message.body == b"yes" else ROLLBACK

    async def awaited(message: ReceivedMessage) -> TransactionState:
        await asyncio.sleep(0)
        return check(message)

    async def main(address: str) -> None:
        options: dict[str, Any] = {"name_server": address, "group": "earlier"}

        async def unknown(_: SendResult) -> TransactionState:
            return TransactionState.UNKNOWN

        async with aio.TransactionProducer(check=unasked_yet, **options) as producer:
            for body in (b"yes", b"no"):
                result = await producer.send_in_transaction(
                    "T", body, unknown, check_after=1 if form == "function" else None
                )
                assert not result.confirmed
        ways: dict[str, Any] = {"function": check, "coroutine": awaited}
        async with aio.TransactionProducer(check=ways[form], topics=["T"], **options):
            await asyncio.to_thread(answered.wait, 20)
            async with aio.PullConsumer(name_server=address, group="read") as consumer:
                await consumer.subscribe("T")
                messages = await consumer.poll(timeout=10)
        assert [message.body for message in messages] == [b"yes"]

    def unasked_yet(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    with cluster(**QUICK) as running:
        asyncio.run(asyncio.wait_for(main(running.name_server), 25))


@pytest.mark.parametrize("first", ["send", "produce"])
def test_aio_checks_are_answered_whatever_the_producer_did_first(first: str) -> None:
    asked = asyncio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return COMMIT

    async def main(address: str) -> None:
        # Without a block: it uses the loop of its first call.
        producer = aio.TransactionProducer(check=check, name_server=address, group="first")
        try:
            if first == "send":
                await producer.send("T", b"plain")
            else:
                await (await producer.produce("T", b"plain"))
            half = await producer.send_in_transaction("T", b"half", lambda _: UNKNOWN)
            assert not half.confirmed
            await asyncio.wait_for(asked.wait(), 20)
        finally:
            await producer.close()

    with cluster(**QUICK) as running:
        asyncio.run(asyncio.wait_for(main(running.name_server), 25))
        assert sorted(bodies(running.name_server, "T", 2)) == [b"half", b"plain"]


@pytest.mark.parametrize("kind", [TransactionProducer, aio.TransactionProducer])
def test_transactions_need_a_group_of_their_own(kind: Callable[..., Any]) -> None:
    options = {"check": unasked, "name_server": "127.0.0.1:1"}
    with pytest.raises(TypeError, match="'group'"):
        kind(**options)
    with pytest.raises(ConfigError, match="their own group"):
        kind(group=Producer(name_server="127.0.0.1:1")._group, **options)
    with pytest.raises(ConfigError, match="option `group`"):
        kind(group="", **options)
    with pytest.raises(TypeError, match="tiemout"):
        kind(group="g", tiemout=3, **options)


def test_a_transactional_producer_that_nobody_holds_ends_by_itself(address: str) -> None:
    def check(_: ReceivedMessage) -> TransactionState:
        return COMMIT

    def threads() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    producer = TransactionProducer(check=check, group="dropped", name_server=address)
    producer.send_in_transaction("dropped", b"x", lambda _: COMMIT)
    gone = weakref.ref(producer)
    assert "pyrmq-requests-dropped" in threads()
    del producer
    gc.collect()
    assert gone() is None
    await_true(lambda: "pyrmq-requests-dropped" not in threads(), 20)


@pytest.mark.parametrize("kind", ["plain", "transactional"])
def test_an_aio_producer_that_nobody_holds_leaves_its_loop(address: str, kind: str) -> None:
    def pipes() -> int:
        # The loop reads from two descriptors of each producer. Files belong to the broker, which
        # runs in this process.
        found = 0
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - they go while they are listed
            with contextlib.suppress(OSError):
                found += os.readlink(f"/proc/self/fd/{name}").startswith("pipe:")  # noqa: PTH115
        return found

    async def use() -> weakref.ref[object]:
        options: dict[str, Any] = {"name_server": address, "group": "left"}
        producer = (
            aio.Producer(**options)
            if kind == "plain"
            else aio.TransactionProducer(check=unasked, **options)
        )
        await producer.send("left", b"x")
        await producer.send_batch("left", [b"y"])
        return weakref.ref(producer)

    async def main() -> None:
        await use()
        gc.collect()
        await asyncio.sleep(0)
        before = pipes()
        for _ in range(5):
            gone = await use()
            gc.collect()
            assert gone() is None
        async with asyncio.timeout(20):
            while pipes() > before:  # noqa: ASYNC110 - nothing tells of them
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_the_end_of_a_transaction_is_traced_in_apaches_form(address: str, topic: str) -> None:
    to = f"{topic}-traces"
    with TransactionProducer(
        check=unasked, name_server=address, group=topic, trace=True, trace_topic=to
    ) as producer:
        half = producer.send_in_transaction(topic, b"x", lambda _: COMMIT, keys="k").half
    contexts = b"".join(bodies(address, to, 1)).decode().split("\x02")
    [end] = [line.split("\x01") for line in contexts if line.startswith("EndTransaction")]
    assert end[2:8] == ["DefaultRegion", topic, topic, half.message_id, "null", "k"]
    assert end[9:] == ["2", half.message_id, "COMMIT_MESSAGE", "false"]


@pytest.mark.parametrize("trace_on", [True, False])
def test_the_end_that_a_broker_asked_for_is_traced_with_the_brokers_region(
    *,
    trace_on: bool,
) -> None:
    """As in Apache's client, a broker that wants no traces stops those of sends, not of ends."""
    with cluster(region_id="north", trace_on=trace_on, **QUICK) as running:
        with TransactionProducer(
            check=lambda _: COMMIT,
            name_server=running.name_server,
            group="asked",
            trace=True,
            trace_topic="asked-traces",
        ) as producer:
            producer.send_in_transaction("asked", b"x", lambda _: UNKNOWN)
            assert bodies(running.name_server, "asked", 1) == [b"x"]
        contexts = b"".join(bodies(running.name_server, "asked-traces", 1, still=0.3))
    lines = [line.split("\x01") for line in contexts.decode().split("\x02")]
    [end, *_] = [line for line in lines if line[0] == "EndTransaction"]
    assert (end[2], end[-2:]) == ("north", ["COMMIT_MESSAGE", "true"])
    assert any(line[0] == "Pub" for line in lines) == trace_on
