"""Members that end, join and leave: how long until every queue is read again."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from benches.e2e.consumers import TOPIC
from benches.e2e.consumers.common import await_true, figure_row, line_of, load, scaled
from benches.e2e.servers import ours
from pyrmq import Admin, Producer, PullConsumer, PushConsumer, QueueId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benches.row import Row
    from pyrmq import ReceivedMessage

Order = Literal["none", "queue"]


def takeover_rows(rounds: int, _: float) -> Iterator[Row]:
    """Measure how long the queues of a member that has ended are not read."""
    cases: tuple[tuple[str, str, str, Order, signal.Signals], ...] = (
        ("takeover-kill", "killed with -9", "<= 1 s", "none", signal.SIGKILL),
        ("takeover-orderly", "killed with -9, orderly", "<= 31 s", "queue", signal.SIGKILL),
        ("takeover-stop", "stopped cleanly", "<= 0.3 s", "none", signal.SIGTERM),
        ("takeover-orderly-stop", "stopped cleanly, orderly", "<= 0.3 s", "queue", signal.SIGTERM),
    )
    with ours() as (side, _took):
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic(TOPIC, queues=4)
        for name, how, target, order, number in cases:
            row = figure_row(name, f"a member is {how}: its queues are read elsewhere", "s", target)
            for turn in range(rounds):
                group = f"{name}-{turn}"
                row.add("ours", _taken_over(side.name_server, order, group, number))
            yield row


def _taken_over(name_server: str, order: Order, group: str, number: signal.Signals) -> float:
    """Return the seconds from a signal until every queue of the member is read here."""
    read: dict[int, float] = {}
    consumer = PushConsumer(name_server=name_server, group=group, order=order, start="last")

    def note(message: ReceivedMessage) -> None:
        read.setdefault(message.queue_id, time.perf_counter())

    consumer.subscribe(TOPIC, note)

    def own() -> list[QueueId]:
        return [queue for queue in consumer.assignment() if queue.topic == TOPIC]

    with ExitStack() as stack:
        stack.enter_context(consumer)
        await_true(lambda: len(own()) == 4, 30, "the first member has all queues")
        process = stack.enter_context(load("member", name_server, order, group))
        line_of(process)
        await_true(lambda: len(own()) == 2, 30, "the second member has its share")
        producer = stack.enter_context(Producer(name_server=name_server))
        # Until the second member reads, too.
        time.sleep(2.0)
        kept = {queue.queue_id for queue in own()}
        lost = [QueueId(TOPIC, own()[0].broker, at) for at in range(4) if at not in kept]
        read.clear()
        began = time.perf_counter()
        process.send_signal(number)
        while not read.keys() >= {queue.queue_id for queue in lost}:
            if time.perf_counter() - began > 60:
                raise TimeoutError("nobody has taken the queues over within 60 s")
            # What the member still handles itself is not seen here: the next one is.
            for queue in lost:
                producer.send(TOPIC, b"x", queue=queue)
            time.sleep(0.005)
        return max(read[queue.queue_id] for queue in lost) - began


def member_rows(rounds: int, scale: float) -> Iterator[Row]:
    """Measure how long a group of 64 needs until its 256 queues are shared again."""
    members, queues = scaled(64, scale, 4), 256
    text = f"{members} consumers on {queues} queues"
    join = figure_row("members-join", f"{text}, one joins: settled", "s", "<= 1.5 s")
    leave = figure_row("members-leave", f"{text}, one leaves: settled", "s", "<= 1.5 s")
    hands = figure_row(
        "members-hands", f"{text}: changes of hands of a queue, most", "changes", "<= 1"
    )
    with ours() as (side, _), ExitStack() as stack:
        with Admin(name_server=side.name_server) as admin:
            admin.create_topic(TOPIC, queues=queues)

        def joined(number: int) -> PullConsumer:
            consumer = PullConsumer(
                name_server=side.name_server, group="wide", instance_name=f"member-{number}"
            )
            stack.callback(consumer.close)
            consumer.subscribe(TOPIC)
            return consumer

        all_of_them = [joined(number) for number in range(members - 1)]
        await_true(lambda: _is_shared(all_of_them, queues), 120, "the queues are shared")
        for turn in range(rounds):
            time.sleep(1.0)
            before = _owners(all_of_them)
            began = time.perf_counter()
            all_of_them.append(joined(members + turn))
            most = _settle(all_of_them, before)
            join.add("ours", time.perf_counter() - began)
            hands.add("ours", most)
            time.sleep(1.0)
            before = _owners(all_of_them)
            gone = all_of_them.pop(turn % members)
            began = time.perf_counter()
            gone.close()
            most = _settle(all_of_them, before)
            leave.add("ours", time.perf_counter() - began)
            hands.add("ours", most)
    yield from (join, leave, hands)


def _owners(consumers: Sequence[PullConsumer]) -> dict[QueueId, list[int]]:
    found: dict[QueueId, list[int]] = {}
    for consumer in consumers:
        for queue in consumer.assignment():
            found.setdefault(queue, []).append(id(consumer))
    return found


def _is_shared(consumers: Sequence[PullConsumer], queues: int) -> bool:
    shares = [len(consumer.assignment()) for consumer in consumers]
    few = queues // len(consumers)
    is_even = all(share in {few, few + 1} for share in shares)
    return is_even and sum(shares) == len(_owners(consumers)) == queues


def _settle(consumers: Sequence[PullConsumer], before: dict[QueueId, list[int]]) -> int:
    """Wait until the queues are shared; return how often the owner of one has changed at most."""
    owner = {queue: owners[0] for queue, owners in before.items()}
    changes = dict.fromkeys(owner, 0)

    def look() -> bool:
        for queue, owners in _owners(consumers).items():
            if owner[queue] not in owners:
                changes[queue] += 1
                owner[queue] = owners[0]
        return _is_shared(consumers, len(owner))

    await_true(look, 60, "the queues are shared again")
    return max(changes.values())
