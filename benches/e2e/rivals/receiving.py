"""Loads that read a backlog of `count` messages, each with a group of its own.

The clock starts with the first messages that arrive, so joining a group does not count on either
side: Kafka lets a new group wait for three seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benches.e2e.rivals.common import FLUSH_S, GROUP, Clock, now, since

if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG = "bench-backlog"


class Counted:
    """Counts what arrives. The first arrival starts the clock and does not count itself."""

    def __init__(self, count: int) -> None:
        """Expect this many messages."""
        self.left = count
        self._began: Clock | None = None
        self._counted = 0
        self._deadline = time.monotonic() + FLUSH_S

    def took(self, messages: int) -> bool:
        """Count these; return whether more are expected."""
        if messages:
            self.left -= messages
            if self._began is None:
                self._began = now()
            else:
                self._counted += messages
        if self.left > 0 and time.monotonic() > self._deadline:
            raise TimeoutError(f"{self.left} messages did not arrive")
        return self.left > 0

    def clock(self, count: int) -> Clock:
        """Return the times, as if all messages had arrived at the rate of the counted ones."""
        assert self._began is not None
        wall, cpu = since(self._began)
        factor = count / max(1, self._counted)
        return wall * factor, cpu * factor


def new_group() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


def pyrmq_fill(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Store the backlog on our broker or the Java one."""
    from pyrmq import Producer

    began = now()
    with Producer(name_server=address, group="bench") as producer:
        for _ in range(count):
            producer.produce(BACKLOG, body)
        if not producer.flush(FLUSH_S) or producer.stats().failed:
            raise RuntimeError("the backlog was not stored")
    return since(began), 0.0


def _polled(address: str, count: int, poll: Callable[[Any], int]) -> tuple[Clock, float]:
    from pyrmq import PullConsumer

    seen = Counted(count)
    with PullConsumer(name_server=address, group=new_group()) as consumer:
        consumer.subscribe(BACKLOG)
        while seen.took(poll(consumer)):
            pass
        return seen.clock(count), 0.0


def pyrmq_batches(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run our `poll_batch`; the list of bodies is read."""
    return _polled(address, count, lambda consumer: len(consumer.poll_batch(timeout=1.0).bodies))


def pyrmq_objects(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run our `poll`: one object for each message, whose body is read."""

    def poll(consumer: Any) -> int:  # noqa: ANN401 - imported where it is used
        return len([message.body for message in consumer.poll(GROUP, timeout=1.0)])

    return _polled(address, count, poll)


def _pushed(address: str, count: int, batch: int) -> tuple[Clock, float]:
    from pyrmq import PushConsumer

    seen, done = Counted(count), threading.Event()
    consumer = PushConsumer(name_server=address, group=new_group(), consume_batch=batch, threads=1)

    def count_one(body: bytes) -> None:
        if not seen.took(1):
            done.set()

    def count_many(bodies: list[bytes]) -> None:
        if not seen.took(len(bodies)):
            done.set()

    consumer.subscribe(BACKLOG, count_one if batch == 1 else count_many)
    with consumer:
        if not done.wait(FLUSH_S):
            raise TimeoutError(f"{seen.left} messages did not arrive")
        return seen.clock(count), 0.0


def pyrmq_push(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run our `PushConsumer` with a function for each message."""
    return _pushed(address, count, 1)


def pyrmq_push_batches(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run our `PushConsumer` with a function for each 32 messages."""
    return _pushed(address, count, 32)


def pyrmq_aio_batches(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run `aio.PullConsumer.poll_batch`."""
    from pyrmq import aio

    async def main() -> Clock:
        seen = Counted(count)
        async with aio.PullConsumer(name_server=address, group=new_group()) as consumer:
            await consumer.subscribe(BACKLOG)
            while seen.took(len((await consumer.poll_batch(timeout=1.0)).bodies)):
                pass
            return seen.clock(count)

    return asyncio.run(main()), 0.0


def confluent_consumer(address: str, topic: str) -> Any:  # noqa: ANN401 - imported where it is used
    settings = {
        "bootstrap.servers": address,
        "group.id": new_group(),
        "auto.offset.reset": "earliest",
    }
    consumer = import_module("confluent_kafka").Consumer(settings)
    consumer.subscribe([topic])
    return consumer


def confluent_fill(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Store the backlog on Kafka."""
    settings = {"bootstrap.servers": address, "acks": 1}
    producer = import_module("confluent_kafka").Producer(settings)
    began = now()
    for _ in range(count):
        while True:
            try:
                producer.produce(BACKLOG, body)
            except BufferError:
                producer.poll(0.01)
            else:
                break
    if producer.flush(FLUSH_S):
        raise TimeoutError
    return since(began), 0.0


def confluent_consume(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run confluent-kafka's `consume(1000)`; each value is read."""
    consumer, seen = confluent_consumer(address, BACKLOG), Counted(count)
    try:
        while seen.took(len([one.value() for one in consumer.consume(GROUP, 1.0)])):
            pass
        return seen.clock(count), 0.0
    finally:
        consumer.close()


def confluent_poll(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run confluent-kafka's `poll` and a function for each value."""
    consumer, seen = confluent_consumer(address, BACKLOG), Counted(count)

    def handle(body: bytes) -> bool:
        return seen.took(1)

    try:
        while True:
            message = consumer.poll(1.0)
            more = seen.took(0) if message is None else handle(message.value())
            if not more:
                return seen.clock(count), 0.0
    finally:
        consumer.close()


def aiokafka_getmany(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run aiokafka's `getmany`; each value is read."""

    async def main() -> Clock:
        seen = Counted(count)
        consumer = import_module("aiokafka").AIOKafkaConsumer(
            BACKLOG,
            bootstrap_servers=address,
            group_id=new_group(),
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            while True:
                parts = await consumer.getmany(timeout_ms=1000)
                values = [one.value for part in parts.values() for one in part]
                if not seen.took(len(values)):
                    return seen.clock(count)
        finally:
            await consumer.stop()

    return asyncio.run(main()), 0.0


def nats_fill(address: str, count: int, body: bytes) -> tuple[Clock, float]:
    """Store the backlog in a stream of JetStream: on the disk, as it is by default."""

    async def main() -> Clock:
        connection = await import_module("nats").connect(address)
        try:
            stream = connection.jetstream(timeout=FLUSH_S)
            config = import_module("nats.js.api").StreamConfig(name=BACKLOG, subjects=[BACKLOG])
            before = (await stream.add_stream(config)).state.messages
            began = now()
            # Plain publishing is ten times faster than awaiting each answer. The stream counts.
            for number in range(count):
                await connection.publish(BACKLOG, body)
                if number % GROUP == 0:
                    await connection.flush(int(FLUSH_S))
            await connection.flush(int(FLUSH_S))
            deadline = time.monotonic() + FLUSH_S
            while (await stream.stream_info(BACKLOG)).state.messages < before + count:
                if time.monotonic() > deadline:
                    raise TimeoutError("the backlog was not stored")
                await asyncio.sleep(0.05)
            return since(began)
        finally:
            await connection.close()

    return asyncio.run(main()), 0.0


def nats_fetch(address: str, count: int, _: bytes) -> tuple[Clock, float]:
    """Run `fetch(1000)` of nats-py on a JetStream pull consumer; each body is read.

    The last message of a fetch acknowledges all of them, so that nothing is asked of nats-py for
    each message that the other clients do not do.
    """

    async def main() -> Clock:
        api = import_module("nats.js.api")
        connection = await import_module("nats").connect(address)
        try:
            seen, group = Counted(count), new_group()
            config = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL, max_ack_pending=-1)
            consumer = await connection.jetstream(timeout=FLUSH_S).pull_subscribe(
                BACKLOG, durable=group, stream=BACKLOG, config=config
            )
            while True:
                messages = await consumer.fetch(GROUP, timeout=FLUSH_S)
                more = seen.took(len([one.data for one in messages]))
                await messages[-1].ack()
                if not more:
                    return seen.clock(count)
        finally:
            await connection.close()

    return asyncio.run(main()), 0.0


LOADS: dict[str, Callable[[str, int, bytes], tuple[Clock, float]]] = {
    "pyrmq fill": pyrmq_fill,
    "pyrmq batches": pyrmq_batches,
    "pyrmq objects": pyrmq_objects,
    "pyrmq push": pyrmq_push,
    "pyrmq push batches": pyrmq_push_batches,
    "pyrmq aio batches": pyrmq_aio_batches,
    "confluent fill": confluent_fill,
    "confluent consume": confluent_consume,
    "confluent poll": confluent_poll,
    "aiokafka getmany": aiokafka_getmany,
    "nats fill": nats_fill,
    "nats fetch": nats_fetch,
}
