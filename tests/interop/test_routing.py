"""Compares queue selection and latency fault tolerance with the Java client's classes.

The same generated steps go to `MQFaultStrategy`, `LatencyFaultToleranceImpl` and `TopicPublishInfo`
of the real client, and to `pyrmq.routing`: both select the same queues. Java's random choice is
excluded: there, a retry continues from a random queue, here from the next one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq.routing import LatencyFaultTolerance, QueueSelector

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.driver import Driver

VERSION = "5.5.0"
"""Older clients have no reachability, and different passes."""
SEQUENCES = 200
SLOW_MS = 900
"""If a sequence took the Java side this long, it is discarded: steps are whole seconds apart."""

Step = tuple[str, ...]


def made_up(chance: random.Random, brokers: list[str]) -> list[Step]:
    """Return answers, failures, choices with and without fault tolerance, and passing time."""
    steps: list[Step] = []
    for _ in range(chance.randrange(1, 60)):
        match chance.randrange(4):
            case 0:
                latency = chance.choice([0, 49, 50, 100, 549, 550, 1800, 2999, 3000, 5000, 15_000])
                flags = (str(int(chance.random() < 0.2)), str(int(chance.random() < 0.8)))
                steps.append(("u", chance.choice(brokers), str(latency), *flags))
            case 1:
                steps.append(("w", str(1000 * chance.choice([1, 1, 2, 5, 10, 30]))))
            case _:
                last = chance.choice([*brokers, "", ""])
                steps.append(("s", last, str(int(chance.random() < 0.8))))
    return [*steps, ("s", "", "1")]


def ours(queues: list[str], start: int, steps: list[Step], ask: list[str]) -> dict[str, Any]:
    """Return the choices of `pyrmq.routing`."""
    selector, faults, now, chosen = QueueSelector(start), LatencyFaultTolerance(), 0, []
    for step in steps:
        match step:
            case ("u", broker, latency, isolate, reachable):
                faults.update(
                    broker,
                    latency_ms=int(latency),
                    now_ms=now,
                    isolate=isolate == "1",
                    reachable=reachable == "1",
                )
            case ("s", last, tolerant):
                table = faults if tolerant == "1" else None
                chosen.append(
                    selector.select(queues, last_broker=last or None, faults=table, now_ms=now)
                )
            case (_, pause):
                now += int(pause)
    return {
        "chosen": chosen,
        "available": {broker: faults.is_available(broker, now_ms=now) for broker in ask},
        "reachable": {broker: faults.is_reachable(broker) for broker in ask},
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_the_java_client_chooses_the_same_queues(
    drivers: Callable[[str, str], Driver], seed: int
) -> None:
    driver, chance, compared = drivers(VERSION, "JSON"), random.Random(seed), 0
    for _ in range(SEQUENCES):
        brokers = [f"b{number}" for number in range(chance.randrange(1, 5))]
        queues = sorted(chance.choice(brokers) for _ in range(chance.randrange(1, 9)))
        start, steps = chance.randrange(10_000), made_up(chance, brokers)
        theirs = driver.call(
            "routing.replay",
            brokers=",".join(queues),
            start=start,
            steps=";".join(":".join(step) for step in steps),
            ask=",".join(brokers),
        )
        if theirs.pop("tookMs") >= SLOW_MS:
            continue
        compared += 1
        assert ours(queues, start, steps, brokers) == theirs, (queues, start, steps)
    assert compared > SEQUENCES // 2
