"""Six groups of consumers under faults: nothing is lost, orders are kept, repeats are explained.

Members are processes that are killed, stopped and replaced while brokers and name servers are
killed, stopped and cut off. `make chaos` sends a million messages; the default run some thousands.
What must hold for each group, however its members share the queues:

* every stored message is handled;
* ``order="queue"``: a call begins when one for the message before it in its queue has ended;
* ``order="key"``: likewise for the message before it in its queue with the same key;
* a message is handled again only where a commit may be missing: its first call ended during a
  fault, or at most a commit interval before one began;
* when all members have ended cleanly, everything is committed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer, QueueId, RmqError
from pyrmq.testing import cluster
from tests.chaos.loads import KEYS, TIMEOUT_S, Quota, Told, send_lists
from tests.chaos.members import COMMIT_S, TOPIC, Handled, Member, Members, Order
from tests.chaos.script import STEP_S, Step, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.script import Servers

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1500)]

ORDERS: tuple[Order, ...] = ("none", "queue", "key")
"""Of the groups of `PushConsumer`."""

KINDS: tuple[Order, ...] = ("pull", "aio", "simple")
"""Groups of other consumers."""

GROUPS = ORDERS + KINDS
MEMBERS = 2
"""Of each group at first."""

LOADS = 4
SLACK_S = 2.0
"""Time for members to notice a fault, and for a busy machine."""

LONG = 100_000
"""From this number of messages on, orderly members are killed, too: their locks last for 30 s."""

MEMBER_TROUBLES = ("kill", "stop", "leave", "join")
SERVER_TROUBLES = ("kill", "stop", "silent", "cut", "lose")

Fault = tuple[float, float]
"""When it began and ended, on the clock of all processes."""


def test_groups_handle_everything_in_order_whatever_happens(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    total = request.config.getoption("--chaos-messages") or 50_000
    seed = int(request.config.getoption("--chaos-seed"))
    print(f"seed {seed}, {total} messages")  # noqa: T201 - shown when it fails
    chance = random.Random(seed)
    with (
        cluster(brokers=2, name_servers=2, processes=True, faults=True) as rocketmq,
        ExitStack() as stack,
    ):
        with Admin(name_server=rocketmq.name_server) as admin:
            admin.create_topic(TOPIC, queues=4)
        servers: Servers = {
            **{one.name: one for one in rocketmq.name_servers},
            **{one.name: one for one in rocketmq.brokers},
        }
        members = Members(rocketmq.name_server, tmp_path)
        stack.callback(members.end)
        for order in GROUPS * MEMBERS:
            members.join(order)
        run = Run(chance, servers, members, total)
        told = run.play(rocketmq.name_server)
        stored = await_stored(rocketmq.name_server)
        await_handled(members, stored)
        for member in members.running:
            assert member.leave() == 0, "a member that is told to end ends cleanly"
        # A broker commits for a group that pops when it looks: after each queue's last message.
        owning: list[Order] = [order for order in GROUPS if order != "simple"]
        assert lags(rocketmq.name_server, owning) == dict.fromkeys(owning, 0)
    bodies = {body for one in told for body in one.stored}
    assert bodies <= stored.keys(), "what was acknowledged is stored"
    for order in GROUPS:
        judge(order, members.handled(order), stored_for(order, stored), run.faults)


class Run:
    """Sends messages while a script of faults plays."""

    def __init__(
        self, chance: random.Random, servers: Servers, members: Members, total: int
    ) -> None:
        """Write the script."""
        self._chance = chance
        self._servers = servers
        self._members = members
        self._total = total
        steps: list[Step] = [("join", order) for order in ORDERS[:1]]
        steps += [(trouble, order) for trouble in MEMBER_TROUBLES[:3] for order in ORDERS]
        steps += [(chance.choice(MEMBER_TROUBLES[:3]), kind) for kind in KINDS]
        steps += [(chance.choice(SERVER_TROUBLES), name) for name in servers]
        for _ in range(len(steps), total // 20_000):
            where = chance.choice([*servers, *GROUPS])
            troubles = MEMBER_TROUBLES if where in GROUPS else SERVER_TROUBLES
            steps.append((chance.choice(troubles), where))
        chance.shuffle(steps)
        self._steps = steps
        now = time.monotonic()
        self.faults: list[Fault] = [(now, now + SLACK_S)]

    def play(self, name_server: str) -> list[Told]:
        """Play the script; return the outcomes of the sends."""
        quota, share = Quota(), self._total // LOADS
        told = [Told(f"load-{number}", ordered=True) for number in range(LOADS)]
        with Producer(name_server=name_server, send_timeout=TIMEOUT_S) as producer:
            threads = [
                threading.Thread(target=send_lists, args=(producer, one, TOPIC, share, quota))
                for one in told
            ]
            for thread in threads:
                thread.start()
            try:
                for number, step in enumerate(self._steps):
                    # A fifth is sent when the faults are over.
                    quota.allow(share * (number + 1) * 4 // (5 * len(self._steps)))
                    self._play(*step)
            finally:
                quota.allow(share)
            for thread in threads:
                thread.join()
        return told

    def _play(self, trouble: str, where: str) -> None:
        began = time.monotonic()
        if where in self._servers:
            play(self._chance, [(trouble, where)], self._servers, lambda *_: None)
        else:
            self._disturb(trouble, [one for one in self._members.running if one.order == where])
        self.faults.append((began, time.monotonic()))
        time.sleep(self._chance.uniform(0.0, 0.5) * STEP_S)

    def _disturb(self, trouble: str, members: list[Member]) -> None:
        member = self._chance.choice(members)
        if trouble == "kill" and member.order == "queue" and self._total < LONG:
            trouble = "leave"
        if trouble == "join" and len(members) > MEMBERS * 2:
            trouble = "leave"
        match trouble:
            case "stop":
                member.pause(self._chance.uniform(0.1, 1.0) * STEP_S)
                return
            case "kill":
                member.kill()
            case "leave":
                assert member.leave() == 0
        if trouble != "join":
            self._members.running.remove(member)
        self._members.join(member.order)


Stored = dict[str, list[tuple[str, int, int]]]
"""The places of each body."""


def await_stored(name_server: str) -> Stored:
    """Read the topic; a broker that has just come back may not be in every route yet."""
    deadline = time.monotonic() + 60
    while True:
        with suppress(RmqError):
            found = read_all(name_server)
            if len({place[0] for places in found.values() for place in places}) == 2:
                return found
        assert time.monotonic() < deadline, "both brokers are to be found again"
        time.sleep(0.2)


def read_all(name_server: str) -> Stored:
    """Return the places of all messages."""
    found: Stored = defaultdict(list)
    group = f"reads-{time.monotonic_ns()}"
    with PullConsumer(name_server=name_server, group=group, auto_commit=None) as consumer:
        queues = consumer.queues(TOPIC)
        ends = {queue: consumer.bounds(queue)[1] for queue in queues}
        consumer.assign(dict.fromkeys(queues, 0))
        left, deadline = sum(ends.values()), time.monotonic() + 300
        while left:
            assert time.monotonic() < deadline, "the queues are not read in time"
            batch = consumer.poll_batch(timeout=1.0)
            rows = zip(batch.bodies, batch.brokers, batch.queue_ids, batch.offsets, strict=True)
            for body, broker, queue_id, offset in rows:
                found[body.decode()].append((broker, queue_id, offset))
            left -= len(batch)
    return found


def stored_for(order: Order, stored: Stored) -> Stored:
    """Return the places as a group's members name them."""
    return {body: [(body, 0, 0)] for body in stored} if order == "simple" else stored


def await_handled(members: Members, stored: Stored) -> None:
    """Wait until every group has handled every place."""
    deadline = time.monotonic() + max(90, len(stored) / 1000)
    for order in GROUPS:
        everywhere = stored_for(order, stored).values()
        wanted = len({place for places in everywhere for place in places})
        while len(members.places(order)) < wanted:
            assert time.monotonic() < deadline, f"group by-{order} does not get everything"
            time.sleep(0.2)


def lags(name_server: str, orders: list[Order]) -> dict[Order, int]:
    """Return how many messages each group has not committed."""
    found: dict[Order, int] = {}
    for order in orders:
        with PullConsumer(
            name_server=name_server, group=f"by-{order}", auto_commit=None
        ) as consumer:
            offsets = consumer.offsets(consumer.queues(TOPIC))
            found[order] = sum(each.lag for each in offsets.values())
    return found


def judge(order: Order, handled: list[Handled], stored: Stored, faults: list[Fault]) -> None:
    """Check what one group has done."""
    everything = {place for places in stored.values() for place in places}
    assert {one.place for one in handled} == everything, f"{order}: all, and nothing else"
    first_end: dict[tuple[str, int, int], int] = {}
    for one in sorted(handled, key=lambda one: one.ended):
        first_end.setdefault(one.place, one.ended)
    before = dict(predecessors(order, stored))
    for one in handled:
        previous = before.get(one.place)
        assert previous is None or first_end[previous] <= one.began, f"{order}: {one} came too soon"
    repeated = unexplained = 0
    for one in handled:
        ended = first_end[one.place]
        if one.ended == ended:
            continue
        repeated += 1
        unexplained += not is_explained(ended / 1e9, one.began / 1e9, faults)
    print(  # noqa: T201 - shown when it fails, and by `make chaos`
        f"{order}: {len(everything)} messages, {repeated} handled again, {len(faults)} faults"
    )
    assert not unexplained, f"{order}: {unexplained} of {repeated} repeats have no cause"


def predecessors(
    order: Order, stored: Stored
) -> Iterator[tuple[tuple[str, int, int], tuple[str, int, int]]]:
    """Yield each place with the one whose call must have ended before."""
    if order not in {"queue", "key"}:
        return
    chains: dict[object, list[tuple[str, int, int]]] = defaultdict(list)
    for body, places in stored.items():
        load, _, number = body.rpartition(":")
        key = (load, int(number) % KEYS) if order == "key" else None
        for place in places:
            chains[place[0], place[1], key].append(place)
    for chain in chains.values():
        chain.sort()
        yield from zip(chain[1:], chain, strict=False)


def is_explained(ended: float, again: float, faults: list[Fault]) -> bool:
    """Whether a fault may have cost the commit of a call that ended before it was made again."""
    return any(
        began - COMMIT_S - SLACK_S <= ended <= over + SLACK_S and began <= again
        for began, over in faults
    )


@pytest.mark.parametrize(
    ("calls", "is_refused"),
    [
        ([("a", 0, 0, 1), ("a", 1, 2, 3)], False),
        ([("a", 0, 0, 5), ("a", 1, 2, 6)], True),
        ([("a", 1, 0, 1), ("a", 0, 2, 3)], True),
        ([("a", 0, 0, 1), ("a", 0, 100, 101), ("a", 1, 102, 103)], True),
        ([("a", 0, 29, 30), ("a", 0, 40, 41), ("a", 1, 42, 43)], False),
        ([("a", 0, 0, 1)], True),
    ],
    ids=["in order", "too soon", "turned round", "again without cause", "again", "lost"],
)
def test_the_judge_sees_what_is_wrong(
    calls: list[tuple[str, int, int, int]],
    is_refused: bool,  # noqa: FBT001 - of the table
) -> None:
    stored: Stored = {"load:0": [("a", 0, 0)], "load:5": [("a", 0, 1)]}
    bodies = {0: "load:0", 1: "load:5"}
    handled = [
        Handled(began * 10**9, ended * 10**9, broker, 0, offset, bodies[offset])
        for broker, offset, began, ended in calls
    ]
    check: Callable[[], None] = lambda: judge("queue", handled, stored, [(31.0, 32.0)])  # noqa: E731
    if is_refused:
        with pytest.raises(AssertionError):
            check()
    else:
        check()


def test_a_broker_that_restarts_in_the_middle_costs_nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Repeats are those of one commit interval at the most, and none after a clean stop."""
    total = min(2 * (request.config.getoption("--chaos-messages") or 20_000), 1_000_000)
    with (
        cluster(brokers=2, processes=True) as rocketmq,
        Producer(name_server=rocketmq.name_server) as producer,
        ExitStack() as stack,
    ):
        with Admin(name_server=rocketmq.name_server) as admin:
            admin.create_topic(TOPIC, queues=4)
        with PullConsumer(name_server=rocketmq.name_server, group="looks") as looker:
            queues = looker.queues(TOPIC)
        stored = fill(producer, queues, total)
        members = Members(rocketmq.name_server, tmp_path)
        stack.callback(members.end)
        members.join("none")
        deadline = time.monotonic() + 300
        while len(members.places("none")) < total // 2:
            assert time.monotonic() < deadline, "half of the messages are not handled in time"
            time.sleep(0.02)
        began = time.monotonic()
        rocketmq.brokers[0].kill()
        rocketmq.brokers[0].start()
        fault = (began, time.monotonic())
        while len(members.places("none")) < total:
            assert time.monotonic() < deadline, "the rest is not handled in time"
            time.sleep(0.2)
        assert members.running[0].leave() == 0
        before = len(members.handled("none"))
        judge("none", members.handled("none"), stored, [fault])
        # The next member begins where the first one has committed.
        members.running.clear()
        members.join("none")
        producer.send(TOPIC, "last:1", queue=queues[0])
        while not any(one.body == "last:1" for one in members.handled("none")):
            assert time.monotonic() < deadline, "the last message is not handled in time"
            time.sleep(0.1)
        assert members.running[0].leave() == 0
        assert len(members.handled("none")) == before + 1


def fill(producer: Producer, queues: list[QueueId], total: int) -> Stored:
    """Store this number of messages; return where."""
    stored: Stored = {}
    size = 500
    for first in range(0, total, size):
        bodies = [f"load:{number}" for number in range(first, min(first + size, total))]
        queue = queues[first // size % len(queues)]
        for body, result in zip(
            bodies, producer.send_batch(TOPIC, bodies, queue=queue), strict=True
        ):
            stored[body] = [(result.broker, result.queue_id, result.queue_offset)]
    return stored
