"""What the tests of `pyrmq store snapshot` share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.wire import await_true

from pyrmq import Admin, PullConsumer

if TYPE_CHECKING:
    import pytest

    from pyrmq.testing import Cluster

KIB = 1024
SEGMENT = 256 * KIB
OPTIONS: dict[str, object] = {
    "mapped_file_size_commit_log": SEGMENT,
    "max_message_size": 64 * KIB,
}


def last_object(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return tree


def stored(running: Cluster, topic: str = "orders") -> dict[str, int]:
    """All messages of a topic with their positions in the log."""
    found: dict[str, int] = {}
    with (
        Admin(name_server=running.name_server) as admin,
        PullConsumer(
            name_server=running.name_server, group="reader", start="first", auto_commit=None
        ) as consumer,
    ):
        total = sum(one.last - one.first for one in admin.topic_stats(topic).values())
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))

        def is_all() -> bool:
            for message in consumer.poll(1024, 0.5):
                found[bytes(message.body).decode()] = message.commit_log_offset
            return len(found) >= total

        await_true(is_all, 20)
    return found
