"""A call that fails when its consumer has almost closed."""

from __future__ import annotations

import threading
import time

import pytest
from tests.e2e.test_push import committed, make

from pyrmq import PushConsumer, ReconsumeLater
from pyrmq.consumer.outcome import hand_back_time
from pyrmq.testing import cluster

CLOSE_S = 2.0
ANSWER_S = 0.5
"""Delay of each direction: the broker answers when the time of the close is over."""


def test_a_call_that_fails_in_the_last_moment_of_a_close_leaves_no_copy() -> None:
    called, release = threading.Event(), threading.Event()

    def listener(_body: str) -> None:
        called.set()
        release.wait(20)
        raise ReconsumeLater(delay_level=18)

    with cluster(brokers=2, faults=True) as running:
        make(running.name_server, "late", ["x"], queues=1)
        consumer = PushConsumer(name_server=running.name_server, group="late")
        consumer.subscribe("late", listener)
        consumer.start()
        assert called.wait(10)
        closing = threading.Thread(target=consumer.close, args=(CLOSE_S,))
        began = time.monotonic()
        closing.start()
        for broker in running.brokers:
            broker.network.delay(ANSWER_S)
        time.sleep(max(0.0, began + CLOSE_S * 0.65 - time.monotonic()))
        release.set()
        closing.join(20)
        assert not closing.is_alive()
        for broker in running.brokers:
            broker.network.heal()
        # Its broker has it for later. Without the commit it would come twice.
        found = committed(running.name_server, "late", "late")
        assert sum(offset or 0 for offset in found.values()) == 1


@pytest.mark.parametrize(("left", "time_s"), [(30.0, 12.5), (5.0, 5.0), (0.1, 3.0), (-7.0, 3.0)])
def test_a_close_waits_for_its_brokers_within_bounds(left: float, time_s: float) -> None:
    assert hand_back_time(left) == time_s
