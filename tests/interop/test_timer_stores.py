"""A store with waiting timer messages moves from the real broker to ours and back."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pyrmq import Producer, PullConsumer
from tests.interop.ask import await_registered
from tests.interop.cluster import broker
from tests.interop.ours import OurNameServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.ours import OurBroker
    from tests.interop.rocketmq import JavaBroker

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(240)]

TOPIC = "Timed"
SETTINGS = {
    "timerPrecisionMs": 100,
    "timerFlushIntervalMs": 100,
    "timerRollWindowSlot": 100,
    "mappedFileSizeTimerLog": 4096,
    "recallMessageEnable": "true",
}
"""Small steps; a log file holds 78 units; messages due in more than ten seconds roll."""


class Site:
    """Our name server, and one broker at a time on the same store."""

    def __init__(self, store: Path, version: str) -> None:
        """Start the name server."""
        self.store, self.version = store, version
        self.stack = ExitStack()
        self.names = self.stack.enter_context(OurNameServer())
        self.broker: JavaBroker | OurBroker | None = None
        self.sent: Counter[bytes] = Counter()

    def start(self, who: str) -> None:
        """Start a broker of a kind."""
        self.broker = broker(
            who, self.version, self.names.address, store_dir=self.store, properties=SETTINGS
        )
        self.stack.callback(self.broker.kill)
        self.broker.start()
        await_registered(self.names.address, self.broker.address)

    def end(self, how: str) -> None:
        """Stop it cleanly or kill it."""
        assert self.broker is not None
        if how == "kill":
            self.broker.kill()
        else:
            self.broker.stop()

    def send(self, name: str, count: int, delays: tuple[float, float]) -> None:
        """Send timer messages that are due between two delays; recall some early ones.

        Apache forgets a recall of a rolled message that falls due while no broker runs.
        """
        first, last = delays
        with Producer(name_server=self.names.address) as producer:
            for at in range(count):
                body = f"{name}-{at}".encode()
                delay = first + (last - first) * at / count
                result = producer.send(TOPIC, body, delay=delay)
                assert result.recall_handle
                if at % 7 == 3 and delay < 9:
                    producer.recall(TOPIC, result.recall_handle)
                else:
                    self.sent[body] += 1

    def read(self, wanted: int, seconds: float = 60.0) -> Counter[bytes]:
        """Read the topic from its beginning until `wanted` different messages arrived."""
        found: Counter[bytes] = Counter()
        deadline = time.monotonic() + seconds
        group = f"reader-{time.monotonic_ns()}"
        with PullConsumer(name_server=self.names.address, group=group) as consumer:
            consumer.assign(dict.fromkeys(consumer.queues(TOPIC), 0))
            while len(found) < wanted and time.monotonic() < deadline:
                found.update(message.body for message in consumer.poll(timeout=0.3))
            found.update(message.body for message in consumer.poll(timeout=1))
        return found


@pytest.fixture
def site(tmp_path: Path, version: str) -> Iterator[Site]:
    """Yield a store that moves between brokers."""
    if version.startswith("4"):
        pytest.skip("brokers before 5.0 have no timer")
    one = Site(tmp_path / "store", version)
    with one.stack:
        yield one


def assert_delivered(found: Counter[bytes], sent: Counter[bytes], end: str) -> None:
    """Compare with the sent messages: each once, after a kill at least once, and nothing else."""
    if end == "kill":
        assert set(found) == set(sent)
        again = {body: count for body, count in found.items() if count > 1}
        assert len(again) <= len(sent) // 2, again
    else:
        assert found == sent


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("writer", ["java", "ours"])
def test_what_one_broker_took_is_delivered_by_the_other_and_back(
    site: Site, writer: str, end: str
) -> None:
    other = "ours" if writer == "java" else "java"
    site.start(writer)
    # Some are delivered here, some fall due while no broker runs, others wait for the next or roll.
    site.send("first", 300, (1.0, 30.0))
    time.sleep(2.0)
    site.end(end)
    site.start(other)
    site.send("second", 200, (1.0, 40.0))
    time.sleep(3.0)
    site.end(end)
    site.start(writer)
    site.send("third", 10, (1.0, 2.0))
    assert_delivered(site.read(site.sent.total()), site.sent, end)
