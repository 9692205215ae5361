"""Each way of sending, in both forms, as a function that returns or raises its error."""

# ruff: noqa: ANN401 - calls are passed through
from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyrmq import TransactionProducer, TransactionState, aio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAYS = [
    "send",
    "send by key",
    "send_async",
    "produce",
    "send_batch",
    "send_oneway",
    "request",
    "send_in_transaction",
]
"""The ways of sending that both forms have."""


def unknown(_: object) -> TransactionState:
    return TransactionState.UNKNOWN


@contextmanager
def sync_ways(**options: Any) -> Iterator[dict[str, Callable[..., object]]]:
    """Yield each way of a synchronous producer; it raises its error."""
    options.setdefault("group", "ways")
    with TransactionProducer(check=unknown, **options) as producer:

        def produced(topic: str, body: Any, **more: Any) -> object:
            told: list[Any] = []
            producer.produce(topic, body, lambda *outcome: told.append(outcome), **more)
            assert producer.flush(timeout=20)
            error, result = told[0]
            if error is not None:
                raise error
            return result

        yield {
            "send": producer.send,
            "send by key": lambda *a, **more: producer.send(*a, sharding_key="k", **more),
            "send_async": lambda *a, **more: producer.send_async(*a, **more).result(timeout=20),
            "produce": produced,
            "send_batch": lambda topic, body, **more: producer.send_batch(topic, [body], **more),
            "send_oneway": producer.send_oneway,
            "request": producer.request,
            "send_in_transaction": lambda topic, body, **more: producer.send_in_transaction(
                topic, body, unknown, **more
            ),
            "close": producer.close,
        }


@contextmanager
def aio_ways(**options: Any) -> Iterator[dict[str, Callable[..., object]]]:
    """Yield each way of an asynchronous producer, run to completion."""
    loop = asyncio.new_event_loop()
    options.setdefault("group", "ways")
    producer = aio.TransactionProducer(check=unknown, **options)

    def run(call: Callable[..., Any]) -> Callable[..., object]:
        def until_done(*arguments: Any, **more: Any) -> object:
            return loop.run_until_complete(asyncio.wait_for(call(*arguments, **more), 20))

        return until_done

    async def produced(*arguments: Any, **more: Any) -> object:
        future = await producer.produce(*arguments, **more)
        await producer.flush()
        return await future

    try:
        yield {
            "send": run(producer.send),
            "send by key": run(lambda *a, **more: producer.send(*a, sharding_key="k", **more)),
            "send_async": run(producer.send),
            "produce": run(produced),
            "send_batch": run(lambda topic, body, **m: producer.send_batch(topic, [body], **m)),
            "send_oneway": run(producer.send_oneway),
            "request": run(producer.request),
            "send_in_transaction": run(
                lambda topic, body, **m: producer.send_in_transaction(topic, body, unknown, **m)
            ),
            "close": run(producer.close),
        }
    finally:
        loop.run_until_complete(producer.close())
        loop.close()


FORMS = {"sync": sync_ways, "aio": aio_ways}
