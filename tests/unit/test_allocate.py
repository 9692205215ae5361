"""pyrmq.routing.allocate: each strategy's shares and errors."""

from __future__ import annotations

import pytest

from pyrmq import ConfigError, QueueId
from pyrmq.routing import allocate

QUEUES = sorted(QueueId("t", f"{room}@b", at) for room in ("north", "south") for at in range(4))
CLIENTS = ["north@1", "south@1", "south@2"]


def room(name: str) -> str:
    return name.split("@")[0]


NEARBY = allocate.MachineRoomNearby(
    allocate.Averagely(),
    room_of_queue=lambda queue: room(queue.broker),
    room_of_client=room,
)
STRATEGIES: list[allocate.Strategy] = [
    allocate.Averagely(),
    allocate.AveragelyByCircle(),
    allocate.ConsistentHash(),
    allocate.ConsistentHash(virtual_nodes=200),
    allocate.ByMachineRoom(["north", "south"]),
    NEARBY,
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_each_queue_has_one_reader(strategy: allocate.Strategy) -> None:
    shares = [strategy.allocate(client, QUEUES, CLIENTS) for client in CLIENTS]
    assert sorted(queue for share in shares for queue in share) == QUEUES
    assert strategy.allocate("stranger@1", QUEUES, CLIENTS) == []


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_what_cannot_be_shared_is_refused(strategy: allocate.Strategy) -> None:
    with pytest.raises(ConfigError, match="client id is empty"):
        strategy.allocate("", QUEUES, CLIENTS)
    with pytest.raises(ConfigError, match="no queues to allocate"):
        strategy.allocate("north@1", [], CLIENTS)
    with pytest.raises(ConfigError, match="no client ids to allocate"):
        strategy.allocate("north@1", QUEUES, [])


def test_strategies_have_the_names_of_apaches_tools() -> None:
    assert [strategy.name for strategy in STRATEGIES[:3]] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
    ]
    names = [STRATEGIES[4].name, NEARBY.name, allocate.ByConfig([]).name]
    assert names == ["MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG", "CONFIG"]


def test_a_room_reads_its_own_queues_first() -> None:
    assert {queue.broker for queue in NEARBY.allocate("north@1", QUEUES, CLIENTS)} == {"north@b"}
    assert {queue.broker for queue in NEARBY.allocate("south@1", QUEUES, CLIENTS)} == {"south@b"}
    # No client is in the north: all share its queues.
    left = CLIENTS[1:]
    assert {queue.broker for queue in NEARBY.allocate("south@1", QUEUES, left)} == {
        "north@b",
        "south@b",
    }


def test_a_room_without_a_name_is_refused() -> None:
    nowhere = allocate.MachineRoomNearby(
        allocate.Averagely(), room_of_queue=lambda _: "", room_of_client=room
    )
    with pytest.raises(ConfigError, match="the queue at place 0 is in no machine room"):
        nowhere.allocate("north@1", QUEUES, CLIENTS)


def test_only_the_chosen_rooms_are_read() -> None:
    north = allocate.ByMachineRoom("north")
    mine = [queue for client in CLIENTS for queue in north.allocate(client, QUEUES, CLIENTS)]
    assert sorted(mine) == QUEUES[:4]


@pytest.mark.parametrize("nodes", [0, 10_001])
def test_a_ring_needs_nodes(nodes: int) -> None:
    with pytest.raises(ConfigError, match=f"{nodes} virtual nodes a client: allowed are 1 to"):
        allocate.ConsistentHash(nodes).allocate("north@1", QUEUES, CLIENTS)


def test_the_configured_queues_are_ones_own() -> None:
    mine = allocate.ByConfig(QUEUES[:2])
    assert mine.allocate("north@1", [], []) == QUEUES[:2]
