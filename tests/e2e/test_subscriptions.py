"""Calls of `subscribe` at the same time: by threads and tasks, and during checks of a pattern."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_pull_verbs import polled
from tests.e2e.test_push import make
from tests.e2e.wire import await_true

import pyrmq.aio
from pyrmq import (
    Admin,
    Broker,
    ConfigError,
    Credentials,
    NameServer,
    Producer,
    PullConsumer,
    RmqError,
    SimpleConsumer,
    TopicNotFound,
)
from pyrmq.consumer import subscriptions
from pyrmq.consumer.subscriptions import SubscribeCall
from pyrmq.errors import PermissionDenied, RequestTimeout
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyrmq.testing import Cluster

Polled = PullConsumer | pyrmq.aio.PullConsumer


@pytest.fixture(scope="module")
def faulty() -> Iterator[Cluster]:
    """A cluster whose servers can fall silent."""
    with cluster(faults=True) as running:
        for name in ("T-1", "T-2"):
            make(running.name_server, name, [], queues=1)
        yield running


class Native:
    """A native consumer that calls back before it subscribes, and before it cancels a call."""

    def __init__(self, consumer: Polled, before: Callable[[str], None]) -> None:
        self._native: Any = consumer._control
        self._before = before
        self.subscribed: list[tuple[str, str]] = []
        self.delay = 0.0
        consumer._control = self  # type: ignore[assignment]
        consumer._subscriptions._control = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the native one
        return getattr(self._native, name)

    def subscribe(self, topic: str, text: str, is_sql: bool, **to: Any) -> None:  # noqa: ANN401, FBT001
        """Call back, then subscribe."""
        self._before(topic)
        self.subscribed.append((topic, text))
        self._native.subscribe(topic, text, is_sql, **to)

    def cancel_subscribe(self, topic: str) -> None:
        """Cancel late."""
        time.sleep(self.delay)
        self._native.cancel_subscribe(topic)


def topics_of(consumer: Polled) -> set[str]:
    """Return the topics whose queues a consumer has."""
    return {queue.topic for queue in consumer.assignment()}


def test_a_check_of_a_pattern_keeps_the_filter_of_a_topic_that_is_named_meanwhile(
    address: str, topic: str
) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    for name in (first, second):
        make(address, name, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        naming = threading.Thread(target=consumer.subscribe, args=(second, "*"))

        def name_the_second(of: str) -> None:
            if of == first:
                naming.start()
                # It may wait for this check.
                naming.join(0.3)

        native = Native(consumer, name_the_second)
        consumer.subscribe(re.compile(re.escape(topic) + "-.*"), "A")
        naming.join(10)
        assert native.subscribed[-1] == (second, "*")
        assert topics_of(consumer) == {first, second}


def test_a_silent_broker_holds_up_one_topic_of_a_pattern_only(address: str, topic: str) -> None:
    silent = [f"{topic}-a-{number}" for number in range(9)]
    good = f"{topic}-z"
    for name in (*silent, good):
        make(address, name, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.3) as consumer:

        def time_out(of: str) -> None:
            if of in silent:
                time.sleep(0.2)
                raise RequestTimeout("silent")

        native = Native(consumer, time_out)
        tried: list[str] = []
        consumer._subscriptions._queues_of = lambda name: [
            (name, "silent" if name in silent else "good", 0)
        ]
        began = time.monotonic()
        consumer.subscribe(re.compile(re.escape(topic) + "-.*"))
        assert time.monotonic() - began < 1.5, "it waits for each topic of the silent broker"
        assert topics_of(consumer) == {good}
        with pytest.raises(RequestTimeout):
            consumer.subscribe(re.compile(re.escape(topic) + "-a-.*"))
        assert time.monotonic() - began < 3
        # Once the broker answers, the checks join the rest.
        tried.extend(silent)
        silent.clear()
        await_true(lambda: topics_of(consumer) == {good, *tried}, 10)
        assert native.subscribed


def test_a_pattern_that_is_subscribed_to_again_gets_its_new_filter(
    address: str, topic: str
) -> None:
    first, second, named = f"{topic}-1", f"{topic}-2", f"{topic}-3"
    for name in (first, second, named):
        make(address, name, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        native = Native(consumer, lambda _: None)
        consumer.subscribe(named, "A")
        for tags in ("A", "*", "*"):
            consumer.subscribe(re.compile(re.escape(topic) + "-.*"), tags)
        assert native.subscribed == [
            *((name, "A") for name in (named, first, second)),
            *((name, "*") for name in (first, second)),
        ]
        with Producer(name_server=address) as producer:
            for name in (first, second):
                producer.send(name, b"without a tag")
        assert {message.topic for message in polled(consumer, 2)} == {first, second}


def test_a_topic_of_a_pattern_keeps_its_filter_until_it_is_joined_with_the_new_one(
    address: str, topic: str
) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    for name in (first, second):
        make(address, name, [], queues=1)
    pattern = re.compile(re.escape(topic) + "-.*")
    refused: set[str] = set()

    def refuse(of: str) -> None:
        if of in refused:
            raise TopicNotFound("refused")

    with PullConsumer(name_server=address, group=f"g-{topic}", rebalance=0.2) as consumer:
        native = Native(consumer, refuse)
        consumer.subscribe(pattern, "A")
        refused.update((first, second))
        with pytest.raises(TopicNotFound):
            consumer.subscribe(pattern, "*")
        assert topics_of(consumer) == {first, second}
        refused.discard(first)
        consumer.subscribe(pattern, "*")
        assert topics_of(consumer) == {first, second}
        assert native.subscribed == [(first, "A"), (second, "A"), (first, "*")]
        refused.clear()
        await_true(lambda: native.subscribed[3:] == [(second, "*")], 5)
        time.sleep(0.5)
        assert len(native.subscribed) == 4, "each has its filter"


def test_a_call_that_fails_undoes_nothing_of_another_call(address: str, topic: str) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    for name in (first, second):
        make(address, name, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        other = threading.Thread(target=consumer.subscribe, args=(first,))

        def refuse_the_second(of: str) -> None:
            if of == second:
                other.start()
                other.join(0.3)
                raise TopicNotFound("refused")

        Native(consumer, refuse_the_second)
        with pytest.raises(TopicNotFound, match="refused"):
            consumer.subscribe([first, second])
        other.join(10)
        assert topics_of(consumer) == {first}


def test_a_call_that_is_cancelled_twice_undoes_nothing_of_the_next_one(faulty: Cluster) -> None:
    async def main() -> None:
        async with pyrmq.aio.PullConsumer(name_server=faulty.name_server, group="g2") as consumer:
            native = Native(consumer, lambda _: None)
            native.delay = 0.3
            with faulty.name_servers[0].network.silence():
                call = asyncio.ensure_future(consumer.subscribe("T-1"))
                await asyncio.sleep(0.1)
                for _ in range(2):
                    call.cancel()
                    await asyncio.sleep(0.01)
            with suppress(asyncio.CancelledError):
                await call
            await consumer.subscribe("T-1", "A")
            await asyncio.sleep(0.5)
            assert topics_of(consumer) == {"T-1"}
            assert native.subscribed[-1] == ("T-1", "A")

    asyncio.run(main())


def test_ctrl_c_ends_a_call_that_waits_for_another_at_once(faulty: Cluster) -> None:
    with SimpleConsumer(name_server=faulty.name_server, group="g3") as consumer:

        def wait_for_servers() -> None:
            with suppress(RmqError):
                consumer.subscribe("T-1")

        with faulty.name_servers[0].network.silence():
            other = threading.Thread(target=wait_for_servers)
            other.start()
            await_true(lambda: not consumer._subscriptions._changing.acquire(blocking=False))
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                consumer.subscribe("T-2")
            assert other.is_alive(), "it has waited for the other call"
        other.join(20)


def test_a_pattern_that_is_undone_leaves_no_topic_that_another_call_has_joined_since(
    address: str, topic: str
) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        subscriptions = consumer._subscriptions
        call = SubscribeCall("A", False)
        undo = subscriptions.undo

        def cancel(_: str) -> None:
            if not call.is_cancelled:
                subscriptions.cancel(call)
                raise RmqError("cancelled")

        def undo_late(call: SubscribeCall) -> None:
            # It has waited for the call that ends here.
            other = threading.Thread(target=consumer.subscribe, args=(topic,))
            other.start()
            other.join(10)
            undo(call)

        Native(consumer, cancel)
        subscriptions.undo = undo_late  # type: ignore[method-assign]
        with pytest.raises(RmqError, match="cancelled"):
            subscriptions.add_pattern(re.compile(re.escape(topic)), call)
        assert topics_of(consumer) == {topic}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster whose broker lets bob read `t-b` and `t-c` alone."""

    def entry(resource: str, *actions: str) -> dict[str, Any]:
        return {"resource": resource, "actions": actions, "decision": "Allow"}

    may = [entry(f"Topic:t-{name}", "Sub", "Get") for name in "bc"]
    may += [entry("Group:g", "Sub", "Get"), entry("Cluster:*", "List", "Get")]
    known = {
        "users": [
            {"username": "root", "password": "root-pass", "userType": "Super"},
            {"username": "bob", "password": "bob-pass"},
        ],
        "acls": [{"subject": "User:bob", "policies": [{"entries": may}]}],
    }
    users, root = tmp_path / "users.json", tmp_path / "root.json"
    users.write_text(json.dumps(known))
    root.write_text(json.dumps({"accessKey": "root", "secretKey": "root-pass"}))
    for file in (users, root):
        file.chmod(0o600)
    both: dict[str, Any] = {"listen_port": 0, "bind_address": "127.0.0.1"}
    with (
        NameServer(**both) as name_server,
        Broker(
            broker_ip1="127.0.0.1",
            namesrv_addr=name_server.address,
            store_path_root_dir=str(tmp_path / "store"),
            mapped_file_size_commit_log=16 << 20,
            authentication_enabled=True,
            authorization_enabled=True,
            auth_config_path=str(users),
            inner_client_credentials_path=str(root),
            **both,
        ) as broker,
    ):
        broker.await_registration()
        credentials = Credentials("root", "root-pass")
        with Admin(name_server=name_server.address, credentials=credentials) as admin:
            for name in "abc":
                admin.create_topic(f"t-{name}", queues=1)
        yield name_server.address


def test_a_topic_of_a_pattern_that_may_not_be_read_keeps_no_other_away(
    guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PullConsumer(
        name_server=guarded,
        group="g",
        rebalance=0.2,
        credentials=Credentials("bob", "bob-pass"),
    )
    with consumer:
        # The old code raised for `t-a`, and looked no further.
        with suppress(RmqError):
            consumer.subscribe(re.compile("t-.*"))
        await_true(lambda: topics_of(consumer) == {"t-b", "t-c"}, 5)
        # It names no topic that its user may not read, so brokers take it.
        consumer.subscribe("t-b", "A")
        with pytest.raises(PermissionDenied):
            consumer.subscribe(re.compile("t-a"))
        assert topics_of(consumer) == {"t-b", "t-c"}
        time.sleep(0.5)
    assert caplog.text.count("topic t-a matches the pattern but could not be joined") == 1


def test_a_topic_that_a_simple_consumer_may_not_read_is_not_received(guarded: str) -> None:
    consumer = SimpleConsumer(
        name_server=guarded, group="g", credentials=Credentials("bob", "bob-pass")
    )
    with consumer:
        consumer.subscribe("t-b")
        with pytest.raises(PermissionDenied):
            consumer.subscribe("t-a")
        assert consumer.topics() == ["t-b"]
        for _ in range(3):
            assert consumer.receive(wait=0.2) == []


@pytest.mark.parametrize("kind", ["pattern", "simple"])
def test_nothing_is_joined_by_a_call_that_is_cancelled(faulty: Cluster, kind: str) -> None:
    async def main() -> None:
        make_one = pyrmq.aio.PullConsumer if kind == "pattern" else pyrmq.aio.SimpleConsumer
        async with make_one(name_server=faulty.name_server, group=f"g-{kind}") as consumer:
            wanted: Any = re.compile("T-.*") if kind == "pattern" else "T-1"

            def joined() -> set[str]:
                if isinstance(consumer, pyrmq.aio.PullConsumer):
                    return topics_of(consumer)
                return set(consumer.topics())

            with faulty.name_servers[0].network.silence(), pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.subscribe(wanted), 0.2)
            await asyncio.sleep(0.7)
            assert joined() == set()
            # The route of the first topic is known by now.
            wanted = wanted if kind == "pattern" else "T-2"
            with faulty.name_servers[0].network.silence(), pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.subscribe(wanted), 0.2)
            await consumer.subscribe(wanted)
            await asyncio.sleep(0.3)
            assert joined() == ({"T-1", "T-2"} if kind == "pattern" else {"T-2"})

    asyncio.run(main())


def test_a_pattern_keeps_its_topics_while_a_name_server_does_not_know_them(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    for name in (first, second):
        make(address, name, [], queues=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    both = f"127.0.0.1:{port};{address}"
    with PullConsumer(name_server=both, group=f"g-{topic}", rebalance=0.2) as consumer:
        consumer.subscribe(re.compile(re.escape(topic) + "-.*"))
        # It is asked first from now on, and no broker has registered with it.
        with NameServer(listen_port=port, bind_address="127.0.0.1"):
            time.sleep(1)
            assert topics_of(consumer) == {first, second}
            monkeypatch.setattr(subscriptions, "_GONE_S", 0.3)
            with Admin(name_server=address) as admin:
                admin.delete_topic(second)
            await_true(lambda: topics_of(consumer) == {first}, 10)


def test_time_in_which_no_name_server_answers_leaves_no_topic_of_a_pattern(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        consumer.subscribe(re.compile(re.escape(topic)))
        answers: list[set[str] | RmqError] = [set(), RequestTimeout("away"), set(), set()]

        def ask(_: object, *, of_all: bool = False) -> set[str]:
            if of_all:
                return set()
            answer = answers.pop(0)
            if isinstance(answer, RmqError):
                raise answer
            return answer

        monkeypatch.setattr(subscriptions, "all_topics", ask)
        monkeypatch.setattr(subscriptions, "_GONE_S", 0.2)
        consumer._subscriptions.check_patterns()
        time.sleep(0.3)
        with pytest.raises(RequestTimeout):
            consumer._subscriptions.check_patterns()
        consumer._subscriptions.check_patterns()
        assert topics_of(consumer) == {topic}
        time.sleep(0.3)
        consumer._subscriptions.check_patterns()
        assert topics_of(consumer) == set()


@pytest.mark.parametrize("moment", ["revoked", "joined"])
def test_a_topic_of_a_pattern_that_is_left_during_a_check_is_joined_by_the_next_one(
    address: str, topic: str, moment: str
) -> None:
    make(address, topic, [], queues=1)
    checks: list[set[str]] = []

    def check(consumer: PullConsumer, _: object) -> None:
        consumer._subscriptions.check_patterns()
        checks.append(topics_of(consumer))

    options: dict[str, Any] = {"on_revoked": check} if moment == "revoked" else {}
    with PullConsumer(name_server=address, group=f"g-{topic}", **options) as consumer:
        is_late = moment == "joined"

        def leave(of: str) -> None:
            nonlocal is_late
            if is_late:
                is_late = False
                with suppress(ConfigError):
                    consumer.unsubscribe(of)

        Native(consumer, leave)
        consumer.subscribe(re.compile(re.escape(topic)))
        if moment == "revoked":
            await_true(lambda: consumer.poll(timeout=0.05) or topics_of(consumer), 10)
            consumer.unsubscribe(topic)
            assert checks == [{topic}]
        assert topics_of(consumer) == set()
        consumer._subscriptions.check_patterns()
        assert topics_of(consumer) == {topic}


def test_a_topic_that_is_left_while_a_poll_joins_it_again_stays_left(
    address: str, topic: str
) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}", max_poll_interval=0.4) as consumer:
        consumer.subscribe(topic)
        await_true(lambda: not consumer.assignment(), 10)

        def leave(of: str) -> None:
            with suppress(ConfigError):
                consumer.unsubscribe(of)

        Native(consumer, leave)
        consumer.poll(timeout=0.5)
        time.sleep(0.2)
        assert topics_of(consumer) == set()
        with pytest.raises(ConfigError, match="not subscribed to"):
            consumer.unsubscribe(topic)


def test_a_topic_that_is_away_as_nobody_polls_can_be_left(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}", max_poll_interval=0.4) as consumer:
        consumer.subscribe(topic)
        await_true(lambda: not consumer.assignment(), 10)
        consumer.unsubscribe(topic)
        with pytest.raises(ConfigError, match="not subscribed to"):
            consumer.unsubscribe(topic)
