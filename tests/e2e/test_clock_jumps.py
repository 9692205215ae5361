"""Servers whose system clock jumps by a day, both ways, during and between runs."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.clock import clock_of_the_servers

from pyrmq import Admin, Producer, PullConsumer, SimpleConsumer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86_400


@pytest.mark.timeout(90)
def test_a_clock_that_jumps_a_day_loses_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(brokers=2, processes=True) as rocketmq,
    ):
        monkeypatch.delenv("LD_PRELOAD")  # The clients keep the real time.
        sent: set[bytes] = set()
        received: set[bytes] = set()
        address = rocketmq.name_server
        with Admin(name_server=address) as admin:
            admin.create_topic("jumps", queues=4)
        with (
            Producer(name_server=address, group="clock", send_timeout=5.0) as producer,
            PullConsumer(name_server=address, group="watch", start="first") as consumer,
        ):
            consumer.subscribe("jumps")

            def exchange(step: str, *, delay_level: int = 0) -> float:
                """Send, receive everything, and return when the brokers stored the last message."""
                stored = 0.0
                for number in range(40):
                    body = f"{step} {number}".encode()
                    producer.send("jumps", body, delay_level=delay_level if number == 0 else 0)
                    sent.add(body)
                while not received >= sent:
                    for message in consumer.poll(timeout=0.5):
                        received.add(message.body)
                        stored = max(stored, message.store_timestamp / 1000)
                return stored

            exchange("before")
            for step, seconds in (("tomorrow", DAY_S), ("yesterday", -DAY_S), ("today", 0)):
                move(seconds)
                stored = exchange(step, delay_level=1)
                assert stored == pytest.approx(time() + seconds, abs=60)
            # Each start finds a store that was written with the clock a day ahead.
            move(DAY_S)
            exchange("a day later")
            for end in ("kill", "stop"):
                for broker in rocketmq.brokers:
                    getattr(broker, end)()
                move(0)
                for broker in rocketmq.brokers:
                    broker.start()
                exchange(f"after {end}")
                move(DAY_S)
                exchange(f"a day after {end}")
        with PullConsumer(name_server=address, group="again", start="first") as reader:
            reader.subscribe("jumps")
            again: set[bytes] = set()
            while not again >= sent:
                again.update(message.body for message in reader.poll(timeout=0.5))
        assert again == sent


@pytest.mark.timeout(90)
@pytest.mark.parametrize("end", ["stop", pytest.param("kill", marks=pytest.mark.nightly)])
def test_timers_keep_their_pace_when_the_clock_is_set_back(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was ahead for a moment neither delays nor hastens anything."""
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(brokers=1, processes=True) as rocketmq,
    ):
        monkeypatch.delenv("LD_PRELOAD")  # The clients keep the real time.
        address, broker = rocketmq.name_server, rocketmq.brokers[0]
        with Admin(name_server=address) as admin:
            admin.create_topic("timers", queues=1)
        with (
            Producer(name_server=address, send_timeout=5.0) as producer,
            PullConsumer(name_server=address, group="watch", start="first") as consumer,
            SimpleConsumer(name_server=address, group="pops") as popping,
        ):
            consumer.subscribe("timers")
            popping.subscribe("timers")

            seen: list[bytes] = []

            def take_time(body: bytes) -> float:
                """Return the seconds until this message comes."""
                began = monotonic()
                producer.send("timers", body, delay=2.0)
                while body not in seen:
                    seen.extend(message.body for message in consumer.poll(timeout=0.5))
                return monotonic() - began

            # It would come within 6 s if a clock that is set back made it early.
            began = monotonic()
            producer.send("timers", b"later", delay=36.0)
            move(30)
            assert take_time(b"ahead") < 20.0
            move(0)
            assert 1.9 < take_time(b"back") < 20.0
            while monotonic() < began + 9.0:
                seen.extend(message.body for message in consumer.poll(timeout=0.5))
            assert b"later" not in seen
            # No message is sent meanwhile, so the timer learns nothing of this but the time.
            move(30 * DAY_S)
            assert take_time(b"a month ahead") < 20.0
            getattr(broker, end)()
            move(0)
            broker.start()
            assert 1.9 < take_time(b"after " + end.encode()) < 20.0
            while not popping.receive(1, invisible=2.0, wait=1.0):
                pass
            began = monotonic()
            while all(message.reconsume_times == 0 for message in popping.receive(32, wait=1.0)):
                assert monotonic() - began < 20.0, "what was not acknowledged does not come back"
