"""A member of a group in a process of its own, which is killed while it has messages.

It writes lines: ``got`` and the delivery for each message that it receives; ``try`` and the body
before it acknowledges one; ``done``, the delivery and the time afterwards.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyrmq import RmqError, SimpleConsumer
from tests.interop.ours import python_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import PoppedMessage

Order = Literal["none", "queue"]

INVISIBLE_S = 3.0
MARGIN_S = 1.0
"""With less time left nothing is sent about a message: it would only be late."""


@dataclass
class Popped:
    """A message as a member received it; times in ms since the epoch.

    Attributes:
        body: its body.
        queue: broker and queue id.
        offset: in that queue.
        popped_ms: when the broker handed it out.
        due_ms: before this it must not be handed out again.
        tries: how often it was delivered before, as the broker says.
    """

    body: str
    queue: tuple[str, int]
    offset: int
    popped_ms: int
    due_ms: int
    tries: int


def now_ms() -> int:
    """The time, as the brokers of this machine have it."""
    return time.time_ns() // 1_000_000


def due_ms(message: PoppedMessage) -> int:
    """When a message comes again, by its receipt."""
    _, popped, invisible = message.receipt.handle.split()[:3]
    return int(popped) + int(invisible)


def popped_of(message: PoppedMessage) -> Popped:
    """Describe a message that was just received."""
    return Popped(
        body=message.body.decode(),
        queue=(message.broker, message.queue_id),
        offset=message.queue_offset,
        popped_ms=int(message.receipt.handle.split()[1]),
        due_ms=due_ms(message),
        tries=message.reconsume_times,
    )


def consumer_of(name_server: str, topic: str, order: Order) -> SimpleConsumer:
    """Make a consumer of the group that is named after a topic."""
    return SimpleConsumer(
        name_server=name_server, group=f"{topic}-group", order=order, max_tries=1000
    )


def acknowledge(consumer: SimpleConsumer, message: PoppedMessage) -> int | None:
    """Acknowledge a message and return the time; None: it may have been too late."""
    try:
        consumer.ack(message)
    except RmqError:
        return None
    # By the broker's clock, which is this machine's: the client counts from the answer.
    at_ms = now_ms()
    return at_ms if at_ms < due_ms(message) else None


def killed_member(
    name_server: str, topic: str, order: Order, choices: random.Random
) -> Iterator[list[Any]]:
    """Run a member, yield its lines, and kill it after a few of them, or soon."""
    arguments = [name_server, topic, order, str(choices.getrandbits(32))]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.interop.pop_member", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": python_path()},
    ) as process:
        assert process.stdout is not None
        too_long = threading.Timer(choices.uniform(1.0, 2.0), process.kill)
        left = choices.randint(1, 20)
        for line in process.stdout:
            if line == "ready\n":
                too_long.start()
            elif line.endswith("\n"):
                yield json.loads(line)
                left -= 1
            if left == 0:
                process.kill()
        too_long.cancel()


def main(name_server: str, topic: str, order: Order, seed: str) -> None:
    """Receive, and acknowledge some, until killed."""
    choices = random.Random(int(seed))
    with consumer_of(name_server, topic, order) as consumer:
        consumer.subscribe(topic)
        _say("ready")
        while True:
            try:
                found = consumer.receive(choices.randint(1, 8), invisible=INVISIBLE_S, wait=0.5)
            except RmqError:
                time.sleep(0.05)
                continue
            for message in found:
                _say(json.dumps(["got", asdict(popped_of(message))]))
            for message in found:
                if choices.random() < 0.3 or message.receipt.time_left <= MARGIN_S:
                    if order == "queue":
                        # It holds back those after it.
                        break
                    continue
                _say(json.dumps(["try", message.body.decode()]))
                at_ms = acknowledge(consumer, message)
                if at_ms is None and order == "queue":
                    break
                if at_ms is not None:
                    _say(json.dumps(["done", asdict(popped_of(message)), at_ms]))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
