"""Consumers of the Go client on two of our brokers."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.testing import cluster
from tests.interop import artifacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(400)]

COUNT = 300
WAYS = ("push-concurrent", "push-orderly", "pull")


@pytest.fixture(scope="module")
def consume() -> Path:
    """The Go program."""
    return artifacts.go_program()


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """Two of our brokers."""
    with cluster(brokers=2) as both:
        yield both


def fill(address: str, topic: str, bodies: list[str]) -> None:
    """Send to all queues of two brokers."""
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=2)
    with Producer(name_server=address) as producer:
        for number, body in enumerate(bodies):
            producer.send(topic, body, sharding_key=f"key-{number % 16}")


def start(program: Path, way: str, address: str, topic: str, count: int) -> subprocess.Popen[str]:
    """Start a member of the group of a topic."""
    command = [str(program), way, address, f"go-{topic}", topic, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows_of(member: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for the end of a member; return the messages that it had."""
    out, errors = member.communicate(timeout=120)
    assert member.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def committed(address: str, topic: str) -> int:
    """Ask how far the group of a topic has come."""
    with PullConsumer(name_server=address, group=f"go-{topic}", auto_commit=None) as looker:
        offsets = looker.offsets(looker.queues(topic)).values()
        return sum(each.committed or 0 for each in offsets)


@pytest.mark.parametrize("way", WAYS)
def test_a_go_consumer_gets_everything_and_commits(
    running: Cluster, consume: Path, way: str
) -> None:
    bodies = [f"m-{number}" for number in range(COUNT)]
    fill(running.name_server, way, bodies)
    rows = rows_of(start(consume, way, running.name_server, way, COUNT))
    assert sorted(row["body"] for row in rows) == sorted(bodies), "each comes once"
    assert {row["broker"] for row in rows} == {"broker-a", "broker-b"}
    assert committed(running.name_server, way) == COUNT
    if way == "push-orderly":
        queues: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in rows:
            queues[row["broker"], row["queue"]].append(row["offset"])
        for offsets in queues.values():
            assert offsets == list(range(len(offsets)))


def test_what_a_go_listener_refuses_comes_again_by_the_retry_topic(
    running: Cluster, consume: Path
) -> None:
    bodies = ["fails-1", "fails-2", "good"]
    fill(running.name_server, "refused", bodies)
    rows = rows_of(start(consume, "push-concurrent", running.name_server, "refused", len(bodies)))
    tries: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        tries[row["body"]].append(row["tries"])
    assert tries == {"fails-1": [0, 1], "fails-2": [0, 1], "good": [0]}
    assert committed(running.name_server, "refused") == len(bodies)


def test_an_orderly_go_listener_has_a_refused_message_again_before_the_next(
    running: Cluster, consume: Path
) -> None:
    bodies = [f"{'fails' if number % 50 == 0 else 'good'}-{number}" for number in range(100)]
    fill(running.name_server, "in-place", bodies)
    rows = rows_of(start(consume, "push-orderly", running.name_server, "in-place", len(bodies)))
    queues: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        queues[row["broker"], row["queue"]].append(row["offset"])
    for offsets in queues.values():
        assert offsets == sorted(offsets), "a queue waits for the message that was refused"
    assert committed(running.name_server, "in-place") == len(bodies)


def test_a_go_member_and_ours_share_the_queues(running: Cluster, consume: Path) -> None:
    topic = "shared"
    bodies = [f"m-{number}" for number in range(COUNT)]
    fill(running.name_server, topic, [])
    seen: list[str] = []
    go = start(consume, "push-concurrent", running.name_server, topic, COUNT + 1)
    try:
        with PullConsumer(
            name_server=running.name_server, group=f"go-{topic}", rebalance=1.0
        ) as ours:
            ours.subscribe(topic)
            while len(ours.assignment()) != 2:
                seen += [message.body.decode() for message in ours.poll(timeout=0.5)]
            with Producer(name_server=running.name_server) as producer:
                for number, body in enumerate(bodies):
                    producer.send(topic, body, sharding_key=f"key-{number % 16}")
            # Each member gets what is in its queues: nothing moves any more.
            share = sum(each.last for each in ours.offsets().values())
            while len(seen) < share:
                seen += [message.body.decode() for message in ours.poll(timeout=0.5)]
            assert go.stdout is not None
            had = {json.loads(go.stdout.readline())["body"] for _ in range(COUNT - share)}
    finally:
        go.kill()
        go.communicate(timeout=10)
    assert had.isdisjoint(seen)
    assert had | set(seen) == set(bodies)
    assert had
    assert seen
