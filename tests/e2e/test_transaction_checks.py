"""Who is asked how a transaction ended, and what comes of a half that may or may not be stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.e2e.test_transactions import COMMIT, DYING, QUICK, ROLLBACK, bodies
from tests.e2e.wire import await_true

from pyrmq import Producer, ReceivedMessage, TransactionProducer, TransactionState
from pyrmq.testing import cluster


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
        # It is in one broker's log, and may be lost: nothing was run, and no other broker has it.
        assert (result.state, result.confirmed) == (ROLLBACK, False)
        for broker in running.brokers:
            broker.stop()
            broker.start()
        await_true(lambda: b"once" in asked, 30)
        found = bodies(running.name_server, "T", 2, still=1.0)
    assert sorted(found) == [b"before", b"once"]
    assert set(asked) == {b"once"}
