"""Tables of one broker that the other must read from their backups."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Producer, PullConsumer, _core
from pyrmq.admin import Admin
from tests.interop.ask import await_registered
from tests.interop.cluster import broker
from tests.interop.ours import OurNameServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.ours import OurBroker
    from tests.interop.rocketmq import JavaBroker

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(240)]

TOPIC = "Kept"
GROUP = "kitchen"
SETTINGS = {"messageDelayLevel": "1s 8s", "autoCreateTopicEnable": "true"}
TABLES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
QUICK, SLOW = 1, 2


@pytest.fixture
def names() -> Iterator[OurNameServer]:
    """A name server that outlives the brokers."""
    with OurNameServer() as one:
        yield one


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stops what a test started, whatever happens."""
    with ExitStack() as one:
        yield one


def start(
    stack: ExitStack, who: str, version: str, names: OurNameServer, store: Path
) -> JavaBroker | OurBroker:
    """Start a broker of a kind on the store."""
    one = broker(who, version, names.address, store_dir=store, properties=SETTINGS)
    stack.callback(one.kill)
    one.start()
    await_registered(names.address, one.address)
    return one


def read(address: str, group: str, wanted: int, seconds: float = 60.0) -> Counter[bytes]:
    """Read `wanted` messages, or those that arrive in time, and commit the offsets."""
    found: Counter[bytes] = Counter()
    deadline = time.monotonic() + seconds
    with PullConsumer(name_server=address, group=group) as consumer:
        consumer.subscribe(TOPIC)
        while found.total() < wanted and time.monotonic() < deadline:
            found.update(message.body for message in consumer.poll(timeout=1))
        # Wait for messages that must not come.
        found.update(message.body for message in consumer.poll(timeout=2))
        consumer.commit()
    return found


def committed(address: str) -> dict[int, int]:
    """Return the group's committed offsets."""
    with Admin(name_server=address) as admin:
        progress = admin.consumer_progress(GROUP, TOPIC)
    return {queue.queue_id: offset.committed for queue, offset in progress.items()}


def only_backups(store: Path, harm: str) -> str:
    """Leave each table intact only in its backup; return the progress of the quick level."""
    for name in TABLES:
        table = store / "config" / f"{name}.json"
        content = table.read_bytes()
        table.with_name(f"{name}.json.bak").write_bytes(content)
        if harm == "cut":
            table.write_bytes(content[: len(content) // 2])
        elif harm == "empty":
            table.write_bytes(b"")
        else:
            table.unlink()
    delays: Any = _core.parse_json((store / "config" / "delayOffset.json.bak").read_bytes())
    return str(delays["offsetTable"][QUICK])


@pytest.mark.parametrize("harm", ["cut", "empty", "missing"])
@pytest.mark.parametrize("writer", ["java", "ours"])
def test_tables_are_read_from_the_other_ones_backups(
    stack: ExitStack, names: OurNameServer, tmp_path: Path, version: str, writer: str, harm: str
) -> None:
    reader = "ours" if writer == "java" else "java"
    first = start(stack, writer, version, names, tmp_path / "store")
    with Producer(name_server=names.address) as producer:
        for number in range(3):
            producer.send(TOPIC, f"quick-{number}", delay_level=QUICK)
        assert read(names.address, GROUP, 3).total() == 3
        for number in range(3):
            producer.send(TOPIC, f"slow-{number}", delay_level=SLOW)
    before = committed(names.address)
    assert sum(before.values()) == 3
    first.stop()
    assert only_backups(tmp_path / "store", harm) == "3", "the offset of what was delivered"

    start(stack, reader, version, names, tmp_path / "store")
    assert {queue: committed(names.address)[queue] for queue in before} == before
    wanted = [f"{name}-{number}".encode() for name in ("quick", "slow") for number in range(3)]
    assert read(names.address, "another", 6) == Counter(wanted), "each once: none again, none lost"
    assert read(names.address, GROUP, 3) == Counter(wanted[3:])
