"""Loads that send. Each returns the time that it took, and a median in microseconds or 0."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benches.e2e.rivals.common import FLUSH_S, GROUP, TOPIC, Clock, median, now, since, tasks

if TYPE_CHECKING:
    from collections.abc import Callable


def pyrmq_produce(address: str, count: int, body: bytes, **options: Any) -> tuple[Clock, float]:  # noqa: ANN401
    """Run our `produce` and one flush."""
    from pyrmq import Producer

    with Producer(name_server=address, group="bench", **options) as producer:
        producer.send(TOPIC, body)
        began = now()
        for _ in range(count):
            producer.produce(TOPIC, body)
        if not producer.flush(FLUSH_S):
            raise TimeoutError
        if failed := producer.stats().failed:
            raise RuntimeError(f"{failed} messages failed")
        return since(began), 0.0


def pyrmq_plain(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run our `produce` without the compression of large bodies, which others do not have on."""
    return pyrmq_produce(address, count, body, compress_over_bytes=None)


def pyrmq_single(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run our `produce` with a frame for each message."""
    return pyrmq_produce(address, count, body, linger=0)


def pyrmq_lone(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run our `send`, one at a time."""
    from pyrmq import Producer

    with Producer(name_server=address, group="bench") as producer:
        producer.send(TOPIC, body)
        began = now()
        figure = median(count, lambda: producer.send(TOPIC, body))
        return since(began), figure


def pyrmq_threads(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run our `send` from 64 threads."""
    from concurrent.futures import ThreadPoolExecutor

    from pyrmq import Producer

    with (
        Producer(name_server=address, group="bench") as producer,
        ThreadPoolExecutor(64) as pool,
    ):
        producer.send(TOPIC, body)

        def some() -> None:
            for _ in range(count // 64):
                producer.send(TOPIC, body)

        began = now()
        for done in [pool.submit(some) for _ in range(64)]:
            done.result()
        return since(began), 0.0


def pyrmq_futures(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run our `send_async`, many in flight, each with a counting callback."""
    from pyrmq import Producer

    with Producer(name_server=address, group="bench") as producer:
        producer.send(TOPIC, body)
        stored = [0]

        def done(future: Any) -> None:  # noqa: ANN401 - of either version's kind
            future.result()
            stored[0] += 1

        began = now()
        for _ in range(count):
            producer.send_async(TOPIC, body).add_done_callback(done)
        producer.flush(FLUSH_S)
        while stored[0] < count and since(began)[0] < FLUSH_S:
            time.sleep(0.001)
        if stored[0] < count:
            raise RuntimeError(f"{count - stored[0]} messages failed")
        return since(began), 0.0


def pyrmq_tasks(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run 1,000 tasks that each await their `send`."""
    from pyrmq import aio

    async def main() -> Clock:
        async with aio.Producer(name_server=address, group="bench") as producer:
            await producer.send(TOPIC, body)
            began = now()
            await tasks(count, lambda: producer.send(TOPIC, body))
            return since(began)

    return asyncio.run(main()), 0.0


def pyrmq_groups(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run groups of 1,000, produced, flushed and awaited together."""
    from pyrmq import aio

    async def main() -> Clock:
        async with aio.Producer(name_server=address, group="bench") as producer:
            await producer.send(TOPIC, body)
            began = now()
            for _ in range(count // GROUP):
                futures = [await producer.produce(TOPIC, body) for _ in range(GROUP)]
                await producer.flush()
                await asyncio.gather(*futures)
            return since(began)

    return asyncio.run(main()), 0.0


def confluent_settings(address: str) -> dict[str, object]:
    """Return its defaults, except that the leader acknowledges from memory, like ours."""
    return {"bootstrap.servers": address, "acks": 1}


def confluent_produce(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run confluent-kafka's `produce` and one flush."""
    producer = import_module("confluent_kafka").Producer(confluent_settings(address))
    failed = 0

    def told(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    producer.produce(TOPIC, body, on_delivery=told)
    producer.flush()
    began = now()
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, body)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    if producer.flush(FLUSH_S):
        raise TimeoutError
    if failed:
        raise RuntimeError(f"{failed} messages failed")
    return since(began), 0.0


def confluent_lone(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run confluent-kafka's `produce` and `flush`, one at a time."""
    producer = import_module("confluent_kafka").Producer(confluent_settings(address))

    def one() -> None:
        producer.produce(TOPIC, body)
        producer.flush()

    one()
    began = now()
    figure = median(count, one)
    return since(began), figure


def confluent_groups(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run confluent-kafka's `AIOProducer`: groups of 1,000, produced, flushed, awaited together."""

    async def main() -> Clock:
        kind = import_module("confluent_kafka.aio").AIOProducer
        producer = kind(confluent_settings(address))
        future = await producer.produce(TOPIC, value=body)
        await producer.flush()
        await future
        began = now()
        for _ in range(count // GROUP):
            futures = [await producer.produce(TOPIC, value=body) for _ in range(GROUP)]
            await producer.flush()
            await asyncio.gather(*futures)
        took = since(began)
        await producer.close()
        return took

    return asyncio.run(main()), 0.0


def aiokafka_tasks(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run aiokafka's `send_and_wait` from 1,000 tasks."""

    async def main() -> Clock:
        producer = import_module("aiokafka").AIOKafkaProducer(bootstrap_servers=address, acks=1)
        await producer.start()
        try:
            await producer.send_and_wait(TOPIC, body)
            began = now()
            await tasks(count, lambda: producer.send_and_wait(TOPIC, body))
            return since(began)
        finally:
            await producer.stop()

    return asyncio.run(main()), 0.0


def nats_tasks(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run nats-py's `publish` from 1,000 tasks, and one flush. No message is confirmed."""

    async def main() -> Clock:
        connection = await import_module("nats").connect(address)
        try:
            await connection.publish(TOPIC, body)
            await connection.flush(int(FLUSH_S))
            began = now()
            await tasks(count, lambda: connection.publish(TOPIC, body))
            await connection.flush(int(FLUSH_S))
            return since(began)
        finally:
            await connection.close()

    return asyncio.run(main()), 0.0


def jetstream_tasks(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Run `publish` of nats-py's JetStream from 1,000 tasks: each is confirmed from memory."""

    async def main() -> Clock:
        module = import_module("nats")
        api = import_module("nats.js.api")
        connection = await module.connect(address)
        try:
            stream = connection.jetstream(timeout=FLUSH_S)
            config = api.StreamConfig(
                name="bench", subjects=["confirmed"], storage=api.StorageType.MEMORY, max_msgs=1000
            )
            await stream.add_stream(config)
            await stream.publish("confirmed", body)
            began = now()
            await tasks(count, lambda: stream.publish("confirmed", body))
            return since(began)
        finally:
            await connection.close()

    return asyncio.run(main()), 0.0


LOADS: dict[str, Callable[[str, int, bytes], tuple[Clock, float]]] = {
    "pyrmq produce": pyrmq_produce,
    "pyrmq produce plain": pyrmq_plain,
    "pyrmq single frames": pyrmq_single,
    "pyrmq lone send": pyrmq_lone,
    "pyrmq 64 threads": pyrmq_threads,
    "pyrmq futures": pyrmq_futures,
    "pyrmq tasks": pyrmq_tasks,
    "pyrmq groups": pyrmq_groups,
    "confluent produce": confluent_produce,
    "confluent lone send": confluent_lone,
    "confluent groups": confluent_groups,
    "aiokafka tasks": aiokafka_tasks,
    "nats tasks": nats_tasks,
    "jetstream tasks": jetstream_tasks,
}
