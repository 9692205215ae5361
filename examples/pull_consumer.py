"""Fetch messages yourself: poll, commit after the work, go back, see the lag.

python examples/pull_consumer.py                  # starts its own servers
python examples/pull_consumer.py 127.0.0.1:9876   # uses yours
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from pyrmq import Producer, PullConsumer
from pyrmq.testing import cluster

COUNT = 1000


def read(consumer: PullConsumer, count: int) -> list[bytes]:
    """Read this many bodies, in lists of what has arrived."""
    found: list[bytes] = []
    while len(found) < count:
        found += consumer.poll_batch(timeout=5.0).bodies
    return found


def main(name_server: str) -> None:
    with Producer(name_server=name_server, group="shop") as producer:
        producer.send_batch("sales", [f"sale {number}" for number in range(COUNT)])

    # With auto_commit=None only `commit` commits: a crash before it repeats, and loses nothing.
    with PullConsumer(name_server=name_server, group="books", auto_commit=None) as consumer:
        consumer.subscribe("sales")
        booked = read(consumer, COUNT)
        print(f"{len(set(booked))} sales booked, {lag(consumer)} not committed")
        consumer.commit()
        print(f"{lag(consumer)} not committed")

        for queue in consumer.assignment():
            consumer.seek(queue, "first")
        print(f"read again: {sorted(read(consumer, COUNT)) == sorted(booked)}")


def lag(consumer: PullConsumer) -> int:
    """Return how many messages the group has not committed."""
    return sum(each.lag for each in consumer.offsets().values())


if __name__ == "__main__":
    with ExitStack() as stack:
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server)
