"""What `commit` says holds: its brokers have the offsets, or an error names the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_commits import committed, fill, take
from tests.e2e.wire import await_true

from pyrmq import PullConsumer, RmqError
from pyrmq.errors import CommitError
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq import QueueId
    from pyrmq.testing import Cluster

AUTO_COMMITS = pytest.mark.parametrize("auto_commit", [600.0, None])


def poll_for(consumer: PullConsumer, condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""

    def holds() -> bool:
        consumer.poll(timeout=0.1)
        return condition()

    await_true(holds, 15)


@AUTO_COMMITS
@pytest.mark.parametrize("offset", [None, 1])
def test_a_late_commit_does_not_take_the_next_member_back(
    address: str, topic: str, auto_commit: float | None, offset: int | None
) -> None:
    """The first member hears of the revocation when the second has committed further already."""
    count = fill(address, topic)
    group = f"late-{topic}"
    revoked: list[QueueId] = []

    def on_revoked(consumer: PullConsumer, queues: list[QueueId]) -> None:
        revoked.extend(queues)
        consumer.commit(None if offset is None else dict.fromkeys(queues, offset))

    options = {"name_server": address, "group": group, "rebalance": 0.2}
    with PullConsumer(**options, auto_commit=auto_commit, on_revoked=on_revoked) as late:  # type: ignore[arg-type]
        late.subscribe(topic)
        seen = 0
        while seen < count // 2:
            seen += len(late.poll(2, timeout=10))
        with PullConsumer(**options, auto_commit=600.0) as other:  # type: ignore[arg-type]
            other.subscribe(topic)
            await_true(lambda: len(other.assignment()) == 2, 10)
            poll_for(other, lambda: all(other.position(one) == 5 for one in other.assignment()))
            other.commit()
            taken = other.assignment()
            assert {late.committed(queue) for queue in taken} == {5}
            poll_for(late, lambda: len(revoked) == 2)
            assert {late.committed(queue) for queue in taken} == {5}
            other.commit()
        assert {late.committed(queue) for queue in taken} == {5}


@pytest.fixture
def killable() -> Iterator[Cluster]:
    """A cluster of processes, for one test."""
    with cluster(brokers=2, processes=True) as running:
        yield running


def lose_commits(rocketmq: Cluster, consumer: PullConsumer, queues: list[QueueId]) -> None:
    """Kill the brokers before they have written what was committed, and start them again."""
    for broker in rocketmq.brokers:
        broker.kill()
        broker.start()

    def answer() -> bool:
        try:
            return all(consumer.committed(queue) is None for queue in queues)
        except RmqError:
            return False

    await_true(answer, 15)


@pytest.mark.faults
@AUTO_COMMITS
def test_a_commit_is_repeated_after_brokers_have_lost_it(
    killable: Cluster, topic: str, auto_commit: float | None
) -> None:
    address = killable.name_server
    count = fill(address, topic)
    with PullConsumer(name_server=address, group="lost", auto_commit=auto_commit) as consumer:
        # As a member of the group it might lose the queues while their brokers are away.
        queues = consumer.queues(topic)
        consumer.assign(queues)
        take(consumer, count)
        consumer.commit()
        lose_commits(killable, consumer, queues)
        consumer.commit()
        assert {*committed(address, "lost", topic).values()} == {5}
        lose_commits(killable, consumer, queues)
        consumer.commit(dict.fromkeys(queues, 5))
        assert {*committed(address, "lost", topic).values()} == {5}


@pytest.mark.nightly
@pytest.mark.faults
def test_what_only_the_application_commits_is_looked_after_too(
    killable: Cluster, topic: str
) -> None:
    """Nobody polls or commits after the brokers have lost it; later messages stay uncommitted."""
    address = killable.name_server
    fill(address, topic)
    with PullConsumer(name_server=address, group="idle", auto_commit=None) as consumer:
        queues = consumer.queues(topic)
        consumer.assign(queues)
        poll_for(consumer, lambda: {*map(consumer.position, consumer.assignment())} == {5})
        consumer.commit(dict.fromkeys(queues, 3))
        lose_commits(killable, consumer, queues)
        await_true(lambda: {*committed(address, "idle", topic).values()} == {3}, 25)


def test_a_commit_names_queues_that_have_gone_with_what_was_returned(
    address: str, topic: str
) -> None:
    count = fill(address, topic)
    options = {"name_server": address, "group": f"gone-{topic}", "rebalance": 0.2}
    with PullConsumer(**options, auto_commit=None) as first:  # type: ignore[arg-type]
        first.subscribe(topic)
        take(first, count)
        had = {*first.assignment()}
        with PullConsumer(**options, auto_commit=None) as second:  # type: ignore[arg-type]
            second.subscribe(topic)
            await_true(lambda: len(first.assignment()) == 2, 15)
            gone = had - {*first.assignment()}
            (named, *_) = gone
            with pytest.raises(CommitError, match="another member") as raised:
                first.commit({named: 5})
            assert raised.value.offsets == {named: 5}
            with pytest.raises(CommitError, match="another member") as raised:
                first.commit()
            assert {*raised.value.offsets} == gone - {named}
            first.commit()
            found = committed(address, f"gone-{topic}", topic)
            assert found == {queue: None if queue in gone else 5 for queue in had}


def test_a_commit_says_nothing_of_queues_that_were_given_up(address: str, topic: str) -> None:
    count = fill(address, topic)
    with PullConsumer(name_server=address, group=f"left-{topic}", auto_commit=None) as consumer:
        consumer.subscribe(topic)
        take(consumer, count)
        consumer.unsubscribe(topic)
        consumer.commit()
