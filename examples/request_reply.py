"""Send a request as a message and get a consumer's reply.

python examples/request_reply.py                  # starts its own servers
python examples/request_reply.py 127.0.0.1:9876   # uses yours
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

from pyrmq import Producer, PullConsumer
from pyrmq.errors import RequestTimeout
from pyrmq.testing import cluster

PRICES = {b"tea": b"2.80", b"coffee": b"3.10"}


def answer(name_server: str, stop: threading.Event) -> None:
    """Read requests and reply to each requester: the other side."""
    with (
        PullConsumer(name_server=name_server, group="prices") as consumer,
        Producer(name_server=name_server, group="prices-replies") as producer,
    ):
        consumer.subscribe("prices")
        while not stop.is_set():
            for request in consumer.poll(timeout=0.1):
                if request.body in PRICES:
                    producer.reply(request, PRICES[request.body])


def main(name_server: str) -> None:
    stop = threading.Event()
    with Producer(name_server=name_server, group="shop") as producer:
        producer.send("prices", b"no request: this only makes the topic")
        replier = threading.Thread(target=answer, args=(name_server, stop))
        replier.start()
        try:
            print("tea:", producer.request("prices", b"tea", timeout=10).body.decode())
            several = [producer.request_async("prices", b"coffee", timeout=10) for _ in range(3)]
            print("coffee, three times:", {reply.result().body.decode() for reply in several})
            producer.request("prices", b"milk", timeout=0.3)
        except RequestTimeout as error:
            print("milk:", error)
        finally:
            stop.set()
            replier.join()


if __name__ == "__main__":
    with ExitStack() as stack:
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server)
