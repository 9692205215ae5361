"""What stays in memory of messages that an application keeps."""

from __future__ import annotations

import os
import subprocess
import sys

from pyrmq import Producer, QueueId, ReceivedMessage

MIB = 1 << 20
BODY = 64 * 1024
COUNT = 512
MESSAGES_PER_KEPT = 32
"""One message of this many is kept: at least one of each answer, which has 4 MiB."""

KEEP = """
import sys
from pathlib import Path

from pyrmq import PullConsumer, QueueId


def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


address, topic, broker, queue, what, count, every = sys.argv[1:]
kept, seen = [], 0
with PullConsumer(name_server=address, group=topic + what, ahead_bytes=8 << 20) as consumer:
    before = resident()
    consumer.assign({QueueId(topic, broker, int(queue)): 0})
    while seen < int(count):
        for message in consumer.poll(64, timeout=10):
            if seen % int(every) == 0:
                kept.append(message if what == "messages" else message.body)
            seen += 1
    message = None
print(resident() - before)
"""


def kept(address: str, queue: QueueId, what: str) -> int:
    """Read a queue in another process; return by how many bytes that has grown."""
    numbers = (str(queue.queue_id), what, str(COUNT), str(MESSAGES_PER_KEPT))
    command = [sys.executable, "-c", KEEP, address, queue.topic, queue.broker, *numbers]
    # The memory of an answer goes back to the system once it is freed.
    setting = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=setting
    )
    return int(done.stdout)


def test_a_kept_message_keeps_its_answer_and_a_kept_body_does_not(address: str, topic: str) -> None:
    with Producer(name_server=address) as producer:
        for _ in range(0, COUNT, MESSAGES_PER_KEPT):
            bodies = [os.urandom(BODY) for _ in range(MESSAGES_PER_KEPT)]
            *_, last = producer.send_batch(topic, bodies, queue=0)
    queue = QueueId(topic, last.broker, last.queue_id)
    with_messages, with_bodies = kept(address, queue, "messages"), kept(address, queue, "bodies")
    whole = COUNT * BODY
    assert with_messages > 0.75 * whole, f"{with_messages / MIB:.1f} MiB"
    assert with_bodies < 0.5 * whole, f"{with_bodies / MIB:.1f} MiB"


def test_the_class_says_what_a_kept_message_keeps() -> None:
    assert "`body` is a copy" in (ReceivedMessage.__doc__ or "")
