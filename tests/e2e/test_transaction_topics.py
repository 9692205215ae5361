"""A topic that is deleted, and made again, while transactions of it are open."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_transactions import COMMIT, QUICK, ROLLBACK, UNKNOWN, bodies
from tests.e2e.wire import await_true

from pyrmq import Admin, ReceivedMessage, TransactionProducer, TransactionState
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("queues", [4, 1], ids=["as many queues", "fewer queues"])
def test_open_transactions_of_a_topic_that_is_made_again_appear_with_their_commit(
    queues: int,
) -> None:
    known = threading.Event()

    def check(_: ReceivedMessage) -> TransactionState:
        return COMMIT if known.is_set() else UNKNOWN

    with (
        cluster(brokers=2, **QUICK) as running,
        Admin(name_server=running.name_server) as admin,
        TransactionProducer(
            check=check, group="g", name_server=running.name_server, send_timeout=10
        ) as producer,
    ):
        admin.create_topic("T", queues=4)

        def make_again(_: object) -> TransactionState:
            admin.delete_topic("T")
            admin.create_topic("T", queues=queues)
            return COMMIT

        # Every queue of both brokers holds one that has not been ended.
        for body in NUMBERS:
            producer.send_in_transaction("T", body, lambda _: UNKNOWN)
        within = producer.send_in_transaction("T", b"within", make_again)
        assert within.confirmed
        known.set()
        # The producer still knows the old queues.
        after = producer.send_in_transaction("T", b"after", lambda _: COMMIT)
        assert after.confirmed
        wanted = sorted([*NUMBERS, b"within", b"after"])
        assert sorted(bodies(running.name_server, "T", len(wanted), still=0.5)) == wanted


def test_transactions_of_a_deleted_topic_wait_for_it_and_can_be_rolled_back() -> None:
    asked: list[bytes] = []
    answers: dict[bytes, TransactionState] = {b"committed": COMMIT, b"rolled back": ROLLBACK}

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return answers[message.body]

    with (
        cluster(brokers=2, **QUICK) as running,
        Admin(name_server=running.name_server) as admin,
        TransactionProducer(check=check, group="g", name_server=running.name_server) as producer,
    ):
        admin.create_topic("T", queues=1)

        def deleting(state: TransactionState) -> Callable[[object], TransactionState]:
            def local(_: object) -> TransactionState:
                admin.delete_topic("T")
                return state

            return local

        committed = producer.send_in_transaction("T", b"committed", deleting(COMMIT))
        assert not committed.confirmed
        await_true(lambda: asked.count(b"committed") > 1)
        admin.create_topic("T", queues=1)
        assert bodies(running.name_server, "T", 1) == [b"committed"]
        rolled_back = producer.send_in_transaction("T", b"rolled back", deleting(ROLLBACK))
        assert rolled_back.confirmed
        admin.create_topic("T", queues=1)
        assert bodies(running.name_server, "T", 0, still=0.5) == []
        assert b"rolled back" not in asked
