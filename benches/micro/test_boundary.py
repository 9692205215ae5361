"""Calls from Python into the native module, with a broker in this process behind them.

The server side runs on other threads of the same process and takes its share of the processors, so
these figures are for comparing one commit with another, not for a claim about throughput.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import pyrmq.aio
from pyrmq import Producer, SendResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from pyrmq.testing import Cluster

MESSAGES = 1000
BODY = b"x" * 128
ROUNDS = 30


@pytest.fixture
def producer(rocketmq: Cluster) -> Iterator[Producer]:
    """Open a producer that knows its route already."""
    with Producer(name_server=rocketmq.name_server, group="micro") as opened:
        opened.send("micro", BODY)
        yield opened


@pytest.mark.benchmark(group="one message")
def test_send(benchmark: BenchmarkFixture, producer: Producer) -> None:
    assert benchmark(producer.send, "micro", BODY).topic == "micro"


@pytest.mark.benchmark(group="one message")
def test_send_async(benchmark: BenchmarkFixture, producer: Producer) -> None:
    def whole() -> SendResult:
        return producer.send_async("micro", BODY).result(10)

    assert benchmark(whole).topic == "micro"


@pytest.mark.benchmark(group="1,000 messages, all confirmed")
def test_produce(benchmark: BenchmarkFixture, producer: Producer) -> None:
    def whole() -> bool:
        for _ in range(MESSAGES):
            producer.produce("micro", BODY)
        return producer.flush()

    assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2)


@pytest.mark.benchmark(group="1,000 messages, all confirmed")
def test_produce_with_callback(benchmark: BenchmarkFixture, producer: Producer) -> None:
    confirmed = 0

    def count(error: BaseException | None, _result: SendResult | None) -> None:
        nonlocal confirmed
        confirmed += error is None

    def whole() -> bool:
        for _ in range(MESSAGES):
            producer.produce("micro", BODY, count, keys="order-42", tags="new")
        return producer.flush()

    assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2)
    assert confirmed >= MESSAGES
    assert confirmed % MESSAGES == 0


@pytest.mark.benchmark(group="1,000 messages, all confirmed")
def test_send_async_many(benchmark: BenchmarkFixture, producer: Producer) -> None:
    def whole() -> int:
        futures = [producer.send_async("micro", BODY) for _ in range(MESSAGES)]
        return len([future.result(10) for future in futures])

    assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2) == MESSAGES


@pytest.mark.benchmark(group="1,000 messages, all confirmed")
def test_send_batch(benchmark: BenchmarkFixture, producer: Producer) -> None:
    bodies = [BODY] * MESSAGES

    def whole() -> int:
        return len(producer.send_batch("micro", bodies))

    assert benchmark.pedantic(whole, rounds=ROUNDS, warmup_rounds=2) == MESSAGES


@pytest.mark.benchmark(group="1,000 messages, all confirmed")
def test_aio_gather(benchmark: BenchmarkFixture, rocketmq: Cluster) -> None:
    with asyncio.Runner() as runner:
        producer = pyrmq.aio.Producer(name_server=rocketmq.name_server, group="micro")

        async def whole() -> int:
            sends = [producer.send("micro", BODY) for _ in range(MESSAGES)]
            return len(await asyncio.gather(*sends))

        try:
            count = benchmark.pedantic(lambda: runner.run(whole()), rounds=ROUNDS, warmup_rounds=2)
        finally:
            runner.run(producer.close())
    assert count == MESSAGES
