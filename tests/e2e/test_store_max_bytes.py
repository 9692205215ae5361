"""`storeMaxBytes`: the log stays below it, and a group that would lose messages is named before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.e2e.wire import await_true

from pyrmq import Producer
from pyrmq.codes import RequestCode
from pyrmq.remoting import Client
from pyrmq.testing import cluster

if TYPE_CHECKING:
    import pytest

KIB = 1024


def test_a_lag_is_warned_about_before_it_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="pyrmq"),
        cluster(
            mapped_file_size_commit_log=64 * KIB,
            max_message_size=32 * KIB,
            store_max_bytes=640 * KIB,
            clean_resource_interval=100,
        ) as running,
        Producer(name_server=running.name_server) as producer,
        Client() as client,
    ):

        def size() -> int:
            store = running.broker.health()["store"]
            return int(store["max_physical_offset"] - store["min_physical_offset"])

        def warned() -> list[str]:
            return [text for text in caplog.messages if "storeMaxBytes" in text]

        producer.send("orders", b"x")
        for group, offset in (("slow", "0"), ("quick", "1000000")):
            for queue in range(4):
                fields = {"consumerGroup": group, "topic": "orders", "queueId": str(queue)}
                client.ask(
                    running.broker.address,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    {**fields, "commitOffset": offset},
                )
        while size() < 600 * KIB:
            producer.send("orders", b"x" * 8 * KIB)
        await_true(lambda: warned() != [])
        assert running.broker.health()["store"]["min_physical_offset"] == 0
        (text,) = warned()
        assert "slow" in text
        assert "orders" in text
        for _ in range(40):
            producer.send("orders", b"x" * 8 * KIB)
        await_true(lambda: size() <= 640 * KIB)
        assert len(warned()) == 1
        # Live: a smaller log at once.
        running.broker.reconfigure({"store_max_bytes": 128 * KIB})
        await_true(lambda: size() <= 128 * KIB)
