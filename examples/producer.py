"""Send one message, many messages, and messages in order.

python examples/producer.py                  # starts its own servers
python examples/producer.py 127.0.0.1:9876   # uses yours
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from pyrmq import Message, MessageError, Producer, RmqError
from pyrmq.testing import cluster


def main(name_server: str) -> None:
    with Producer(name_server=name_server, group="shop") as producer:
        # One message: the call returns when a broker has stored it.
        result = producer.send("orders", b"two coffees", keys="order-42", tags="new")
        print(f"{result.status.name}: queue {result.queue_id}, offset {result.queue_offset}")

        # Many messages: few frames, a result for each. A Message carries its own properties.
        lines = [Message("orders", f"line {n}", keys=f"order-{n}") for n in range(1000)]
        results = producer.send_batch("orders", lines)
        print(f"{len(results)} messages in {producer.stats().batches} batches")

        # In order: one key, one queue, even through retries.
        steps = [
            producer.send("orders", step, sharding_key="order-42")
            for step in ("paid", "packed", "sent")
        ]
        queues, offsets = {step.queue_id for step in steps}, [step.queue_offset for step in steps]
        print(f"{len(queues)} queue, in order: {offsets == sorted(offsets)}")

        # Each cause of failure has its own error class.
        try:
            producer.send("orders", b"")
        except MessageError as error:
            print(f"refused before it left: {error}")
        try:
            producer.send("orders", b"x", queue=99, timeout=1)
        except RmqError as error:
            print(f"not stored: {error}")


if __name__ == "__main__":
    with ExitStack() as stack:
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server)
