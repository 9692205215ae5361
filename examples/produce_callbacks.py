"""Send at the highest rate of one thread: messages gather, callbacks get each outcome.

python examples/produce_callbacks.py                          # starts its own servers
python examples/produce_callbacks.py 127.0.0.1:9876 1000000   # uses yours
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from time import perf_counter

from pyrmq import Producer, RmqError, SendResult
from pyrmq.testing import cluster


def main(name_server: str, count: int) -> None:
    queues: Counter[int] = Counter()
    failed: list[RmqError] = []

    def delivered(error: RmqError | None, result: SendResult | None) -> None:
        """Runs in `poll`, `flush` and `close`, in this thread."""
        if result is not None:
            queues[result.queue_id] += 1
        elif error is not None:
            # `error.may_exist`: whether the message may be stored anyway.
            failed.append(error)

    began = perf_counter()
    with Producer(name_server=name_server, group="sensors") as producer:
        for number in range(count):
            # Waits up to send_timeout if too many messages are in flight.
            producer.produce("readings", b"%d" % number, delivered)
            if number % 1000 == 0:
                producer.poll()
        if not producer.flush(timeout=30):
            print("some are still on their way: close() waits, then calls their callbacks")
        stats = producer.stats()
    rate = count / (perf_counter() - began)
    print(f"{queues.total()} stored in {len(queues)} queues, {len(failed)} failed")
    print(f"{rate:,.0f}/s, {stats.batch_size:.0f} messages in a batch, {stats.retries} retries")


if __name__ == "__main__":
    with ExitStack() as stack:
        address = sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server
        main(address, int(sys.argv[2]) if sys.argv[2:] else 20_000)
