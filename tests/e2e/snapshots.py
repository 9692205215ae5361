"""What the tests of `pyrmq store snapshot` share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.e2e.wire import await_true

from pyrmq import Admin, PullConsumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from pyrmq.testing import Cluster

KIB = 1024
SEGMENT = 256 * KIB
OPTIONS: dict[str, object] = {
    "mapped_file_size_commit_log": SEGMENT,
    "max_message_size": 64 * KIB,
}


_BLANK = 0xCBD43194
"""Begins a record that fills the rest of a file of the log (Apache `BLANK_MAGIC_CODE`)."""


def write_full_log(store: Path, files: int, size: int) -> None:
    """Write a log of full files, each of one blank record. They are sparse: no disk is filled."""
    log = store / "commitlog"
    log.mkdir(parents=True)
    for number in range(files):
        with (log / f"{number * size:020}").open("wb") as file:
            file.write(size.to_bytes(4, "big") + _BLANK.to_bytes(4, "big"))
            file.truncate(size)


def last_object(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return tree


def stored(
    running: Cluster,
    topic: str = "orders",
    *,
    name: Callable[[str], str] = str,
    seconds: float = 20.0,
) -> dict[str, int]:
    """All messages of a topic with their positions in the log.

    Args:
        running: the cluster.
        topic: the topic.
        name: what a body is known by, which is its own. Default: all of it.
        seconds: in which all of them can be read.
    """
    found: dict[str, int] = {}
    read = 0
    with (
        Admin(name_server=running.name_server) as admin,
        PullConsumer(
            name_server=running.name_server, group="reader", start="first", auto_commit=None
        ) as consumer,
    ):
        total = sum(one.last - one.first for one in admin.topic_stats(topic).values())
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))

        def is_all() -> bool:
            nonlocal read
            for message in consumer.poll(1024, 0.5):
                read += 1
                key, position = name(bytes(message.body).decode()), message.commit_log_offset
                # A send that was tried again may be stored twice.
                found[key] = min(position, found.get(key, position))
            return read >= total

        await_true(is_all, seconds)
    return found
