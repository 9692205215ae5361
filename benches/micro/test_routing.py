"""Queue selection, latency fault tolerance, filters and allocation strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyrmq import QueueId
from pyrmq.routing import Filter, LatencyFaultTolerance, QueueSelector, allocate, queue_by_hash

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

BROKERS = (2, 16)
FILTERS = {
    "comparison": "price > 10",
    "and-or": "(region = 'east' OR region = 'west') AND price BETWEEN 5 AND 50",
    "in": "region IN ('north', 'south', 'east') AND NOT (price IS NULL)",
}
PROPERTIES = {"region": "east", "price": "42", "color": "red", "KEYS": "order-1"}
STRATEGIES: dict[str, allocate.Strategy] = {
    "average": allocate.Averagely(),
    "circle": allocate.AveragelyByCircle(),
    "consistent-hash": allocate.ConsistentHash(),
}


def _queues(brokers: int) -> list[str]:
    return [f"broker-{number}" for number in range(brokers) for _ in range(4)]


@pytest.mark.parametrize("brokers", BROKERS)
@pytest.mark.benchmark(group="choose a queue")
def test_select(benchmark: BenchmarkFixture, brokers: int) -> None:
    queues, selector = _queues(brokers), QueueSelector()
    assert benchmark(selector.select, queues) in range(len(queues))


@pytest.mark.parametrize("brokers", BROKERS)
@pytest.mark.benchmark(group="choose a queue")
def test_select_with_fault_tolerance(benchmark: BenchmarkFixture, brokers: int) -> None:
    queues, selector, faults = _queues(brokers), QueueSelector(), LatencyFaultTolerance()
    for number in range(brokers):
        faults.update(f"broker-{number}", latency_ms=600 if number == 0 else 1, now_ms=0)

    def choose() -> int | None:
        return selector.select(queues, faults=faults, now_ms=1)

    chosen = benchmark(choose)
    assert chosen is not None
    assert queues[chosen] != "broker-0"


@pytest.mark.benchmark(group="choose a queue")
def test_select_by_key(benchmark: BenchmarkFixture) -> None:
    assert benchmark(queue_by_hash, "order-20260101-000042", 64) in range(64)


@pytest.mark.benchmark(group="fault tolerance")
def test_update_a_broker(benchmark: BenchmarkFixture) -> None:
    faults = LatencyFaultTolerance()

    def update() -> None:
        faults.update("broker-0", latency_ms=3, now_ms=1)

    benchmark(update)
    assert faults.is_available("broker-0", now_ms=1)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.benchmark(group="match a filter")
def test_filter(benchmark: BenchmarkFixture, name: str) -> None:
    assert benchmark(Filter(FILTERS[name]).matches, PROPERTIES)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.benchmark(group="parse a filter")
def test_parse(benchmark: BenchmarkFixture, name: str) -> None:
    assert benchmark(Filter, FILTERS[name]).matches(PROPERTIES)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.benchmark(group="allocate 256 queues among 64 consumers")
def test_allocate(benchmark: BenchmarkFixture, name: str) -> None:
    queues = [QueueId("orders", f"broker-{n // 64}", n % 64) for n in range(256)]
    clients = [f"10.0.0.{number}@{number}" for number in range(64)]
    mine = benchmark(STRATEGIES[name].allocate, clients[7], queues, sorted(clients))
    assert set(mine) <= set(queues)
