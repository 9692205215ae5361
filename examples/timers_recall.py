"""Timer messages: after a delay, at a time, and recalled before they are delivered.

python examples/timers_recall.py                  # starts its own servers
python examples/timers_recall.py 127.0.0.1:9876   # uses yours (5.0 or newer; recall: 5.4 or newer)
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from pyrmq import BrokerError, Producer, PullConsumer
from pyrmq.testing import cluster


def main(name_server: str) -> None:
    with Producer(name_server=name_server, group="kitchen") as producer:
        tea = producer.send("reminders", b"take the tea out", delay=0.5)
        at = datetime.now(UTC) + timedelta(seconds=1)
        producer.send("reminders", b"serve", deliver_at=at)
        # One of Apache's 18 levels (1: 1 s), which 4.x brokers also have.
        producer.send("reminders", b"wash up", delay_level=1)
        late = producer.send("reminders", b"order pizza", delay=3600)
        if late.recall_handle:
            producer.recall("reminders", late.recall_handle)
            print("no pizza")
        with PullConsumer(name_server=name_server, group="cook") as consumer:
            consumer.subscribe("reminders")
            for number, message in enumerate(consumer, start=1):
                print(message.body.decode())
                if number == 3:
                    break
        try:
            if tea.recall_handle:
                producer.recall("reminders", tea.recall_handle)
        except BrokerError as error:
            print("too late:", error)


if __name__ == "__main__":
    with ExitStack() as stack:
        own = cluster(recall_message_enable=True, timer_precision_ms=100)
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(own).name_server)
