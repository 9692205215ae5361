"""pyrmq.routing: queue selection and latency fault tolerance without any server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq import ConfigError, QueueId
from pyrmq.routing import (
    Fault,
    LatencyFaultTolerance,
    MachineRoom,
    QueueSelector,
    java_hash,
    queue_by_hash,
)


def test_queues_come_in_turn() -> None:
    selector = QueueSelector(start=1)
    assert [selector.select(["a", "a", "b"]) for _ in range(4)] == [1, 2, 0, 1]


def test_a_retry_goes_to_another_broker_if_there_is_one() -> None:
    selector = QueueSelector()
    assert selector.select(["a", "a", "b"], last_broker="a") == 2
    assert selector.select(["a", "a"], last_broker="a") in {0, 1}
    assert selector.select([]) is None


def test_a_slow_broker_is_left_out_and_comes_back() -> None:
    faults, selector = LatencyFaultTolerance(), QueueSelector()
    faults.update("a", latency_ms=600, now_ms=0)
    queues = ["a", "b"]
    assert {selector.select(queues, faults=faults, now_ms=1999) for _ in range(4)} == {1}
    assert {selector.select(queues, faults=faults, now_ms=2000) for _ in range(4)} == {0, 1}
    assert faults.get("a") == Fault(latency_ms=600, until_ms=2000, reachable=True)


def test_when_all_are_left_out_one_is_taken_all_the_same() -> None:
    faults = LatencyFaultTolerance()
    faults.update("a", latency_ms=1, isolate=True, reachable=False, now_ms=0)
    assert not faults.is_available("a", now_ms=9999)
    assert not faults.is_reachable("a")
    assert QueueSelector().select(["a"], faults=faults, now_ms=1) == 0
    faults.remove("a")
    assert faults.get("a") is None


def test_a_schedule_of_ones_own_must_ascend() -> None:
    faults = LatencyFaultTolerance([(10, 100), (20, 200)])
    faults.update("a", latency_ms=15, now_ms=0)
    assert (faults.is_available("a", now_ms=99), faults.is_available("a", now_ms=100)) == (
        False,
        True,
    )
    with pytest.raises(ValueError, match="ascend"):
        LatencyFaultTolerance([(20, 1), (10, 1)])


@given(st.text(max_size=30))
def test_the_hash_is_javas(text: str) -> None:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2])) & 0xFFFF_FFFF
    assert java_hash(text) == value - (value >> 31 << 32)


@given(st.text(max_size=30), st.integers(1, 50))
def test_a_key_always_has_the_same_queue(key: str, count: int) -> None:
    place = queue_by_hash(key, count)
    assert place is not None
    assert 0 <= place < count
    assert place == queue_by_hash(key, count)


def test_a_machine_room_takes_its_queues_in_turn() -> None:
    far = [QueueId("t", "south@a", number) for number in range(2)]
    near = [QueueId("t", "north@a", 0), QueueId("t", "north@b", 0), QueueId("t", "east@c", 0)]
    room = MachineRoom(["north", "east"])
    assert {room([*far, *near]) for _ in range(3)} == set(near)
    assert {room(far) for _ in range(2)} == set(far)
    with pytest.raises(ConfigError, match="north has a queue: there are broker, south@a"):
        MachineRoom("north", elsewhere=False)([*far, QueueId("t", "broker", 0)])
    with pytest.raises(ConfigError, match="no queue to choose from"):
        room([])
