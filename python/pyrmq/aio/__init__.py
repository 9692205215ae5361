"""Producer and consumers for asyncio: the methods of `pyrmq`'s classes, to be awaited.

No thread is started and none waits: the native module does the work, and wakes the event loop
through one descriptor for any number of outcomes.

Example:
    >>> import asyncio
    >>> from pyrmq.aio import Producer
    >>> from pyrmq.testing import cluster
    >>> async def main(address: str) -> int:
    ...     async with Producer(name_server=address) as producer:
    ...         sends = (producer.send("numbers", str(number)) for number in range(100))
    ...         return len(await asyncio.gather(*sends))
    >>> with cluster() as running:
    ...     asyncio.run(main(running.name_server))
    100
"""

from pyrmq.aio.consumer import PullConsumer as PullConsumer
from pyrmq.aio.producer import Producer as Producer
from pyrmq.aio.push import PushConsumer as PushConsumer
from pyrmq.aio.simple import SimpleConsumer as SimpleConsumer
from pyrmq.aio.transaction import TransactionProducer as TransactionProducer

__all__ = ["Producer", "PullConsumer", "PushConsumer", "SimpleConsumer", "TransactionProducer"]
