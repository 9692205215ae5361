"""Which producer is asked for a transaction's end, and half messages of unknown outcome."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_transactions import COMMIT, DYING, QUICK, ROLLBACK, UNKNOWN, bodies
from tests.e2e.wire import await_true

from pyrmq import (
    Admin,
    Producer,
    QueueId,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from pyrmq.producer import SendHook
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyrmq.testing.members import ClusterBroker


def test_a_producer_without_check_says_so_and_the_next_of_its_group_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = "before the commit"
    with cluster(**QUICK) as running:
        died = subprocess.run(
            [sys.executable, "-c", DYING, where, running.name_server],
            check=False,
            timeout=30,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert died.returncode == -signal.SIGKILL
        with Producer(name_server=running.name_server, group="dying") as plain:
            plain.send("T", b"plain")
            await_true(lambda: "has no `check`" in caplog.text)
            assert bodies(running.name_server, "T", 1, still=0.3) == [b"plain"]
            with TransactionProducer(
                check=lambda _: COMMIT, topics=["T"], group="dying", name_server=running.name_server
            ):
                found = bodies(running.name_server, "T", 2, still=0.5)
    assert sorted(found) == [where.encode(), b"plain"]


def test_a_half_whose_fsync_failed_appears_once_after_the_restart_of_its_broker() -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return COMMIT

    with (
        cluster(brokers=2, faults=True, flush_disk_type="SYNC_FLUSH", **QUICK) as running,
        TransactionProducer(
            check=check, topics=["T"], group="g", name_server=running.name_server
        ) as producer,
    ):
        producer.send_in_transaction("T", b"before", lambda _: COMMIT)
        with running.brokers[0].disk.fail_syncs(), running.brokers[1].disk.fail_syncs():
            result = producer.send_in_transaction("T", b"once", lambda _: pytest.fail("it ran"))
        # It is in one broker's log, and may be lost: no local transaction ran, no other broker has
        # it.
        assert (result.state, result.confirmed) == (ROLLBACK, False)
        for broker in running.brokers:
            broker.stop()
            broker.start()
        await_true(lambda: b"once" in asked, 30)
        found = bodies(running.name_server, "T", 2, still=1.0)
    assert sorted(found) == [b"before", b"once"]
    assert set(asked) == {b"once"}


class Ended(SendHook):
    """Notes which transactions ended because a broker asked."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def after_transaction(
        self, topic: str, message_id: str, state: TransactionState, *, asked: bool
    ) -> None:
        """Note one."""
        if asked:
            self.ids.add(message_id)


def test_a_silent_broker_does_not_delay_the_checks_of_another() -> None:
    """Each end that a broker does not confirm takes 3 s: one after the other, these take 60 s."""
    known = threading.Event()
    asked: set[bytes] = set()
    ended = Ended()

    def check(message: ReceivedMessage) -> TransactionState:
        if not known.is_set():
            return UNKNOWN
        asked.add(message.body)
        return COMMIT

    with (
        cluster(brokers=2, faults=True, **QUICK) as running,
        Admin(name_server=running.name_server) as admin,
        TransactionProducer(
            check=check, group="g", name_server=running.name_server, hooks=[ended]
        ) as producer,
    ):
        admin.create_topic("T", queues=1)

        def begin(broker: ClusterBroker, body: bytes) -> str:
            queue = QueueId("T", broker.name, 0)
            result = producer.send_in_transaction("T", body, lambda _: UNKNOWN, queue=queue)
            return result.half.message_id

        silent, other = running.brokers
        unconfirmed = {begin(silent, b"silent") for _ in range(20)}
        confirmed = begin(other, b"other")
        with silent.network.silence(direction="requests"):
            known.set()
            await_true(lambda: asked == {b"silent", b"other"})
            await_true(lambda: confirmed in ended.ids)
            assert not unconfirmed & ended.ids
        assert set(bodies(running.name_server, "T", 21)) == {b"silent", b"other"}


def test_the_ends_that_a_producer_has_said_are_confirmed_before_it_is_closed() -> None:
    ended = Ended()
    known, said = threading.Event(), threading.Event()

    def check(_: ReceivedMessage) -> TransactionState:
        if not known.is_set():
            return UNKNOWN
        said.set()
        return COMMIT

    with cluster(faults=True, **QUICK) as running:
        with TransactionProducer(
            check=check, group="g", name_server=running.name_server, hooks=[ended]
        ) as producer:
            result = producer.send_in_transaction("T", b"x", lambda _: UNKNOWN)
            running.brokers[0].network.delay(0.3, direction="requests")
            known.set()
            assert said.wait(10)
        assert result.half.message_id in ended.ids
        assert bodies(running.name_server, "T", 1) == [b"x"]


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_no_check_and_no_hook_ends_the_thread_that_answers_brokers(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Ends(SendHook):
        def after_transaction(self, *_: object, asked: bool) -> None:
            if asked:
                raise kind("a hook that ends")

    raised = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        if not raised.is_set():
            raised.set()
            raise kind("a check that ends")
        return COMMIT

    with (
        cluster(**QUICK) as running,
        TransactionProducer(
            check=check, group="g", name_server=running.name_server, hooks=[Ends()]
        ) as producer,
    ):
        producer.send_in_transaction("T", b"x", lambda _: UNKNOWN)
        assert bodies(running.name_server, "T", 1) == [b"x"]
        await_true(lambda: "a hook that ends" in caplog.text, 10)
        producer.send_in_transaction("T", b"y", lambda _: UNKNOWN)
        assert sorted(bodies(running.name_server, "T", 2)) == [b"x", b"y"]
    assert "a check that ends" in caplog.text
