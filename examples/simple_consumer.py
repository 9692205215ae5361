"""Acknowledge each message: any worker takes any message, and a slow one delays nothing.

python examples/simple_consumer.py                  # starts its own servers
python examples/simple_consumer.py 127.0.0.1:9876   # uses yours
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack

from pyrmq import Producer, SimpleConsumer
from pyrmq.testing import cluster

COUNT = 20


def work(consumer: SimpleConsumer, done: list[bytes]) -> None:
    """Take one message at a time until all are done."""
    while len(done) < COUNT:
        for message in consumer.receive(1, invisible=10.0, wait=0.5):
            if message.body == b"job 0" and message.reconsume_times == 0:
                # Given back: another worker gets it at once.
                consumer.change_invisible(message, 0)
                continue
            # Hidden from the others while the block runs.
            with consumer.renewing(message, invisible=10.0):
                time.sleep(0.01)
            consumer.ack(message)
            done.append(message.body)


def main(name_server: str) -> None:
    with Producer(name_server=name_server, group="shop") as producer:
        for number in range(COUNT):
            producer.send("jobs", f"job {number}")

    done: list[bytes] = []
    with SimpleConsumer(name_server=name_server, group="workers") as consumer:
        consumer.subscribe("jobs")
        # More workers than queues: all have work.
        workers = [threading.Thread(target=work, args=(consumer, done)) for _ in range(16)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(f"{len(done)} acknowledged, {len(set(done))} different")


if __name__ == "__main__":
    with ExitStack() as stack:
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server)
