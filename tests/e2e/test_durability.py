"""Senders that request how safe a message must be before its answer."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest
from tests.e2e.wire import Connection

from pyrmq import ConfigError, Producer, TransactionProducer, TransactionState, aio
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.message import SendResult

Level: TypeAlias = Literal["memory", "local"]

A_MINUTE_MS = 60_000


def fsynced(running: Cluster) -> int:
    """Return the position up to which the log is fsynced."""
    position: int = running.broker.health()["store"]["flushed_offset"]
    return position


@pytest.fixture(scope="module")
def lazy() -> Iterator[Cluster]:
    """A cluster that fsyncs only on request."""
    with cluster(flush_interval_commit_log=A_MINUTE_MS) as running:
        yield running


@pytest.fixture(scope="module")
def careful() -> Iterator[Cluster]:
    """A cluster with SYNC_FLUSH."""
    with cluster(flush_disk_type="SYNC_FLUSH") as running:
        yield running


def send_all_ways(address: str, topic: str, durability: Level) -> list[SendResult]:
    """Send with every call that returns a result."""
    told: list[SendResult] = []
    common: dict[str, Any] = {"name_server": address, "durability": durability}
    with Producer(**common) as producer:
        told.append(producer.send(topic, b"one"))
        told.append(producer.send(topic, b"keyed", sharding_key="a"))
        told.append(producer.send_async(topic, b"later").result(10))
        told += producer.send_batch(topic, [b"some", b"more"])
        called: list[SendResult | None] = []
        producer.produce(topic, b"called back", on_delivery=lambda _, result: called.append(result))
        assert producer.flush(10)
        told += [result for result in called if result is not None]

    async def awaited() -> SendResult:
        async with aio.Producer(**common) as producer:
            return await producer.send(topic, b"awaited")

    told.append(asyncio.run(awaited()))
    assert len(told) == 7
    return told


def test_a_sender_that_asks_for_local_waits_for_the_disk(lazy: Cluster) -> None:
    with Producer(name_server=lazy.name_server) as producer:
        before = producer.send("orders", b"not asked")
    assert before.durability is None
    assert fsynced(lazy) == 0, "nobody has asked for an fsync yet"
    results = send_all_ways(lazy.name_server, "orders", "local")
    assert {result.durability for result in results} == {"local"}
    assert 'durability="local"' in repr(results[0])
    last = max(int(result.offset_message_id[-16:], 16) for result in results)
    assert fsynced(lazy) > last


def test_a_sender_that_asks_for_memory_does_not_wait(careful: Cluster) -> None:
    results = send_all_ways(careful.name_server, "orders", "memory")
    assert {result.durability for result in results} <= {"memory", "local"}
    results = send_all_ways(careful.name_server, "orders", "local")
    assert {result.durability for result in results} == {"local"}


def test_only_a_message_that_does_not_wait_says_so(lazy: Cluster) -> None:
    """Apache's brokers read `WAIT`, and take a message without it as one that waits."""
    waits: dict[Level | None, list[bytes]] = {
        None: [],
        "local": [],
        "memory": [b"WAIT\x01false"],
    }
    for durability, wait in waits.items():
        with Producer(name_server=lazy.name_server, durability=durability) as producer:
            result = producer.send("waits", b"one")
        position = str(int(result.offset_message_id[-16:], 16))
        with Connection(lazy.broker.address) as connection:
            record = connection.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": position}).body
        assert record is not None
        assert re.findall(rb"WAIT\x01\w+", record) == wait


def test_a_half_is_as_safe_as_was_asked_for(lazy: Cluster) -> None:
    with TransactionProducer(
        name_server=lazy.name_server,
        group="halves",
        durability="local",
        check=lambda _: TransactionState.COMMIT,
    ) as producer:
        sent = producer.send_in_transaction("orders", b"half", lambda _: TransactionState.COMMIT)
    assert sent.half.durability == "local"


def test_a_level_that_is_none_is_refused(lazy: Cluster) -> None:
    wrong: Any = "replicated"
    with pytest.raises(ConfigError, match="`durability` is 'replicated', it must be 'memory'"):
        Producer(name_server=lazy.name_server, durability=wrong)


def test_a_broker_refuses_a_level_that_it_does_not_know(lazy: Cluster) -> None:
    fields = {
        "a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
        "durability": "replicated",
    }  # fmt: skip
    with Connection(lazy.broker.address) as connection:
        answer = connection.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "durability `replicated` is not known to this broker" in (answer.remark or "")
