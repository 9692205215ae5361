"""Rows of a broker with many of something: connections, topics, messages. They have no rival."""

from __future__ import annotations

import resource
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.e2e.wire import Connection

from benches.e2e.consumers.common import figure_row, scaled
from benches.e2e.servers import ours
from benches.row import Row
from benches.usage import resident_mib
from pyrmq import Admin, Producer
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONNECTIONS, TOPICS, MESSAGES = 5000, 1000, 300_000
UNDER_LOAD = 5_000_000
BODY = b"x" * 128
TOPIC = "bench-lone"
LONE = 1500
SPARE_FILES = 200
FLUSH_S = 60.0


def breadth_rows(names: set[str], rounds: int, scale: float) -> Iterator[Row]:
    """Run the rows of these names; `scale` shortens a smoke run."""
    for name, work in ROWS.items():
        if name in names:
            yield from work(rounds, scale)


def connection_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure a broker with 5,000 connections that have sent a message each."""
    count, lone = scaled(CONNECTIONS, scale, 100), scaled(LONE, scale, 30)
    text = f"{count:,} connections that have sent"
    memory = figure_row("connections-memory", f"{text}: memory of the broker", "MiB", "reported")
    send = figure_row(
        "connections", f"{text}: p50 of a send beside them / alone", "µs", "reported", "alone"
    )
    _allow_files(count + SPARE_FILES)
    with ours() as (side, _), Producer(name_server=side.name_server) as producer:
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic(TOPIC, queues=1)
            (broker,) = admin.cluster().popitem()[1]
        for _ in range(3):
            _lone(producer, lone)
        before = resident_mib(side.broker_pid)
        for _ in range(rounds):
            send.add("alone", _lone(producer, lone), server=side.broker_pid)
            with ExitStack() as stack:
                for _ in range(count):
                    _send_once(stack.enter_context(Connection(str(broker.master))))
                memory.add("ours", resident_mib(side.broker_pid) - before)
                send.add("ours", _lone(producer, lone), server=side.broker_pid)
    yield from (memory, send)


def topic_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure a producer whose messages go to 1,000 topics in turn."""
    topics, count = scaled(TOPICS, scale, 10), scaled(MESSAGES, scale, 1000)
    rate = Row(
        name="topics",
        what=f"produce, 128 B, to {topics:,} topics in turn / to one",
        unit="msg/s",
        target="reported",
        rival="one topic",
    )
    memory = figure_row(
        "topics-memory", f"{topics:,} topics that are sent to: memory of the broker", "MiB", ""
    )
    names = [f"bench-topic-{number}" for number in range(topics)]
    with ours() as (side, _), Producer(name_server=side.name_server) as producer:
        with Admin(name_server=side.name_server) as admin:
            for name in names:
                admin.create_topic(name, queues=1)
        _rate(producer, names[:1], count)
        before = resident_mib(side.broker_pid)
        for _ in range(rounds):
            for name, chosen in (("one topic", names[:1]), ("ours", names)):
                rate.add(name, _rate(producer, chosen, count), server=side.broker_pid)
            memory.add("ours", resident_mib(side.broker_pid) - before)
    yield from (rate, memory)


def memory_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure the memory of a new server while a producer sends at full rate."""
    count = scaled(UNDER_LOAD, scale, 1000)
    what = f"name server + broker, {count:,} messages of 128 B at full rate: resident at most"
    row = figure_row("memory", what, "MiB", "reported")
    for _ in range(rounds):
        with ours() as (side, _), Producer(name_server=side.name_server) as producer:
            with Admin(name_server=side.name_server) as admin:
                admin.create_topic(TOPIC, queues=8)
            _rate(producer, [TOPIC], count)
            row.add("ours", resident_mib(side.broker_pid, peak=True))
    yield row


def _allow_files(count: int) -> None:
    """Raise this process's limit of open files where it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def _send_once(connection: Connection) -> None:
    fields = {"a": "bench", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, fields, BODY)
    if answer.code != 0:
        raise RuntimeError(f"a send was refused: {answer.remark}")


def _lone(producer: Producer, count: int) -> float:
    """Return the median time of a send to a topic without readers, in µs."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        producer.send(TOPIC, BODY)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def _rate(producer: Producer, topics: Sequence[str], count: int) -> float:
    """Return messages a second, to the last confirmation."""
    began = time.perf_counter()
    for number in range(count):
        producer.produce(topics[number % len(topics)], BODY)
    if not producer.flush(FLUSH_S):
        raise TimeoutError(f"not flushed within {FLUSH_S:g} s")
    return count / (time.perf_counter() - began)


ROWS: dict[str, Callable[[int, float], Iterator[Row]]] = {
    "connections": connection_rows,
    "topics": topic_rows,
    "memory": memory_rows,
}
"""What `--rows` takes."""
