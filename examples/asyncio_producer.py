"""Use a producer in a web application: created at startup, closed at shutdown.

    python examples/asyncio_producer.py                  # starts its own servers
    python examples/asyncio_producer.py 127.0.0.1:9876   # uses yours

Pass `lifespan` to FastAPI or Starlette as the argument of that name; `order` is a handler.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from pyrmq import RmqError, SendTimeout
from pyrmq.aio import Producer, PullConsumer
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def lifespan(name_server: str) -> AsyncIterator[Producer]:
    """Create a producer. It connects at the first send; at the end, pending messages are sent."""
    async with Producer(name_server=name_server, group="shop") as producer:
        yield producer


async def order(producer: Producer, number: int) -> int:
    """Await each send: sends of one iteration of the loop share a frame."""
    try:
        await producer.send("orders", f"order {number}", keys=f"order-{number}")
    except SendTimeout as error:
        # 504 if it may be stored: the caller must not blindly retry.
        return 504 if error.may_exist else 503
    except RmqError:
        return 503
    return 201


async def main(name_server: str) -> None:
    async with lifespan(name_server) as producer:
        answers = await asyncio.gather(*(order(producer, number) for number in range(500)))
        print(f"{answers.count(201)} of {len(answers)} orders taken")
        futures = [await producer.produce("audit", f"entry {n}") for n in range(500)]
        await producer.flush()
        print(f"{len({(await f).queue_id for f in futures})} queues of `audit` in use")
    async with PullConsumer(name_server=name_server, group="kitchen") as consumer:
        await consumer.subscribe("orders")
        print(f"the kitchen reads {len(await consumer.poll(max_messages=10, timeout=10))} at once")


if __name__ == "__main__":
    with ExitStack() as stack:
        address = sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server
        asyncio.run(main(address))
