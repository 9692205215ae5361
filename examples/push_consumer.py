"""Have a function called for each message: retries, and a dead letter for a body that does not fit.

python examples/push_consumer.py                  # starts its own servers
python examples/push_consumer.py 127.0.0.1:9876   # uses yours
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from pyrmq import Producer, PushConsumer, ReconsumeLater
from pyrmq.testing import cluster


@dataclass
class Order:
    """The type made from a message's body, a JSON object."""

    what: str
    count: int


def main(name_server: str) -> None:
    # The reason of a dead letter is in the log, of many alike that of the first.
    logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
    with Producer(name_server=name_server, group="shop") as producer:
        producer.send("meals", '{"what": "tea", "count": 2}')
        producer.send("meals", '{"what": "soup", "count": 1}')
        producer.send("meals", "not an order")

    consumer = PushConsumer(name_server=name_server, group="kitchen")
    cooked: list[str] = []
    tried: set[str] = set()

    @consumer.listener("meals")
    def cook(order: Order) -> None:
        if order.what == "soup" and order.what not in tried:
            tried.add(order.what)
            raise ReconsumeLater(pause=0.2)  # in this process; after an error, in 10 s
        cooked.append(f"{order.count} {order.what}")

    # A service calls `consumer.run()`, which ends at SIGTERM or Ctrl-C.
    with consumer:
        while len(cooked) + consumer.stats()["dead"] < 3:
            time.sleep(0.05)
    print("cooked:", ", ".join(sorted(cooked)))
    print("dead letters:", consumer.stats()["dead"])


if __name__ == "__main__":
    with ExitStack() as stack:
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server)
