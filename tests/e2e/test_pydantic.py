"""Listeners whose annotation is a pydantic model."""

from __future__ import annotations

import logging

import pydantic
import pytest
from tests.e2e.test_push import make
from tests.e2e.wire import await_true

from pyrmq import PullConsumer, PushConsumer


class Line(pydantic.BaseModel):
    """A part of an order."""

    article: str
    count: int = 1


class Order(pydantic.BaseModel):
    """A body."""

    id: int
    lines: list[Line]


@pytest.mark.parametrize("in_batches", [False, True])
def test_a_body_becomes_a_model_and_one_that_does_not_fit_a_dead_letter(
    address: str, topic: str, caplog: pytest.LogCaptureFixture, *, in_batches: bool
) -> None:
    good, bad = '{"id": 7, "lines": [{"article": "tea"}]}', '{"id": "seven", "lines": []}'
    make(address, topic, [good, bad], queues=1)
    group, seen = f"push-{topic}", list[Order]()

    def one(order: Order) -> None:
        seen.append(order)

    def several(orders: list[Order]) -> None:
        seen.extend(orders)

    consumer = PushConsumer(name_server=address, group=group, consume_batch=16 if in_batches else 1)
    consumer.subscribe(topic, several if in_batches else one)
    with caplog.at_level(logging.ERROR, "pyrmq.consumer"), consumer:
        await_true(lambda: consumer.stats().done == 1 and consumer.stats().dead == 1, 10)
        assert consumer.stats().unfit == 1
    assert seen == [Order(id=7, lines=[Line(article="tea", count=1)])]
    # The reason is pydantic's.
    assert "Input should be a valid integer" in caplog.text
    with PullConsumer(name_server=address, group="looks") as looker:
        looker.subscribe(f"%DLQ%{group}")
        assert [message.body.decode() for message in looker.poll(timeout=10)] == [bad]
