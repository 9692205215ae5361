"""Consumers that do nothing: without messages, and with a backlog in every queue."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from benches.e2e.consumers import TOPIC
from benches.e2e.consumers.common import figure_row, line_of, load, scaled
from benches.e2e.servers import ours
from pyrmq import Admin, Producer, QueueId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benches.row import Row


def idle_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure 10 consumers that get no messages: processor time and memory of their process."""
    seconds = str(max(2.0, 20 * scale))
    with ours() as (side, _):
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic(TOPIC, queues=4)
        for kind in ("pull", "push"):
            text = f"10 idle consumers ({kind}) in a process"
            cpu = figure_row(f"idle-{kind}-cpu", f"{text}: processor time", "% of a core", "<= 1 %")
            memory = figure_row(f"idle-{kind}-memory", f"{text}: resident", "MiB", "<= 60 MiB")
            threads = figure_row(f"idle-{kind}-threads", f"{text}: threads", "threads", "reported")
            for _ in range(rounds):
                with load("idle", side.name_server, kind, seconds) as process:
                    figures = line_of(process)
                cpu.add("ours", figures["cpu_percent"])
                memory.add("ours", figures["resident_mib"])
                threads.add("ours", figures["threads"])
            yield from (cpu, memory, threads)


def backlog_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure the memory of a consumer that handles nothing of 256 queues of backlog."""
    queues, each = 256, scaled(1000, scale, 10)
    with ours() as (side, _):
        _fill_queues(side.name_server, queues, each)
        for kind in ("pull", "push"):
            text = f"{queues} queues of backlog, a {kind} consumer that handles nothing"
            most = figure_row(
                f"backlog-{kind}-memory", f"{text}: resident", "MiB", "<= 100 MB (95 MiB)"
            )
            grown = figure_row(f"backlog-{kind}-growth", f"{text}: growth later", "MiB", "flat")
            for _ in range(rounds):
                with load("backlog", side.name_server, kind, str(max(4, 20 * scale))) as process:
                    figures = line_of(process)
                if figures["queues"] != queues:
                    print(f"  the consumer has {figures['queues']} queues", file=sys.stderr)
                most.add("ours", figures["most_mib"])
                grown.add("ours", figures["grown_mib"])
            yield from (most, grown)


def _fill_queues(name_server: str, queues: int, each: int) -> None:
    """Store messages of 1 KiB in every queue."""
    body = os.urandom(1024)
    with Admin(name_server=name_server) as admin:
        admin.create_topic(TOPIC, queues=queues)
        (broker,) = admin.route(TOPIC).queues
    with Producer(name_server=name_server) as producer:
        for number in range(queues):
            producer.send_batch(TOPIC, [body] * each, queue=QueueId(TOPIC, broker.broker, number))
