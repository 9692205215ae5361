"""Consumers in a process of their own: `python -m benches.e2e.consumers.loads LOAD ADDRESS ...`.

The rows in this folder measure them from outside, or read the JSON line that they print.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.e2e.consumers import TOPIC
from benches.usage import cpu_seconds, resident_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyrmq.consumer import PullConsumer, PushConsumer

SETTLE_S = 3.0
GROUPS = 64
"""Groups of the load `fan_out`."""


def say(**figures: float | str) -> None:
    """Print figures as a line of JSON."""
    print(json.dumps(figures), flush=True)


def idle(address: str, kind: str, seconds: str) -> None:
    """Measure processor time and memory of this process with 10 consumers without messages."""
    consumers = [_started(kind, address, f"idle-{kind}-{number}") for number in range(10)]
    time.sleep(SETTLE_S)
    before = cpu_seconds(os.getpid())
    time.sleep(float(seconds))
    spent = cpu_seconds(os.getpid()) - before
    threads = len(list(Path("/proc/self/task").iterdir()))
    memory = resident_mib(os.getpid())
    say(cpu_percent=spent / float(seconds) * 100, resident_mib=memory, threads=threads)
    for consumer in consumers:
        consumer.close()


def _started(kind: str, address: str, group: str) -> PullConsumer | PushConsumer:
    from pyrmq import PullConsumer, PushConsumer

    if kind == "pull":
        puller = PullConsumer(name_server=address, group=group)
        puller.subscribe(TOPIC)
        return puller
    pusher = PushConsumer(name_server=address, group=group)
    pusher.subscribe(TOPIC, lambda _: None)
    pusher.start()
    return pusher


def backlog(address: str, kind: str, seconds: str) -> None:
    """Measure the memory of a consumer that finds a backlog in every queue and handles nothing."""
    from pyrmq import PushConsumer

    is_over = threading.Event()
    if kind == "push":
        consumer: Any = PushConsumer(name_server=address, group="backlog-push")
        consumer.subscribe(TOPIC, lambda _: is_over.wait() and None)
        consumer.start()
    else:
        consumer = _started("pull", address, "backlog-pull")
    end = time.monotonic() + float(seconds)
    most = 0.0
    samples = []
    while time.monotonic() < end:
        samples.append(resident_mib(os.getpid()))
        most = max(most, samples[-1])
        time.sleep(0.1)
    half = len(samples) // 2
    queues = sum(queue.topic == TOPIC for queue in consumer.assignment())
    # Flat: the second half of the time needs no more than the first.
    say(most_mib=most, grown_mib=max(samples[half:]) - max(samples[:half]), queues=queues)
    is_over.set()
    consumer.close()


def member(address: str, order: str, group: str) -> None:
    """Consume until SIGTERM."""
    from pyrmq import PushConsumer

    consumer = PushConsumer(name_server=address, group=group, order=order)  # type: ignore[arg-type]
    consumer.subscribe(TOPIC, lambda _: None)
    say(ready=1)
    consumer.run()


def fan_out(address: str, count: str) -> None:
    """Receive this number of messages in each of 64 groups; print a histogram of their age."""
    from benches.open_loop import encoded
    from pyrmq import PushConsumer

    took: list[float] = []
    wanted = int(count) * GROUPS

    def arrived(bodies: list[bytes]) -> None:
        now = time.perf_counter()
        took.extend(now - float(body) for body in bodies)

    consumers = []
    for number in range(GROUPS):
        one = PushConsumer(
            name_server=address, group=f"fan-{number}", threads=1, consume_batch=32, start="last"
        )
        one.subscribe(TOPIC, arrived)
        one.start()
        consumers.append(one)
    while any(not one.assignment() for one in consumers):
        time.sleep(0.1)
    time.sleep(SETTLE_S)
    say(ready=1)
    deadline = time.monotonic() + 120
    while len(took) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    # Closing commits. The caller ends this process when it has the figures; without the commits,
    # the next turn would begin with messages of this one, which would count as late.
    for one in consumers:
        one.close()
    say(arrived=len(took) / GROUPS, histogram=encoded(took))


LOADS: dict[str, Callable[..., None]] = {
    "idle": idle,
    "backlog": backlog,
    "member": member,
    "fan_out": fan_out,
}


def main(words: Sequence[str]) -> None:
    """Run a load."""
    LOADS[words[0]](*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
