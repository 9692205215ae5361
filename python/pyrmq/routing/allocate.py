"""Which consumer of a group reads which queue: the strategies of Apache's Java client.

Every member of a group computes its own share from the queues of the topic and the client ids of
the group. All must use one strategy and pass the same lists in the same order: sort both.

Example:
    >>> queues = [QueueId("orders", "broker-a", number) for number in range(5)]
    >>> [queue.queue_id for queue in Averagely().allocate("b", queues, ["a", "b"])]
    [3, 4]
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pyrmq import _core
from pyrmq.message import QueueId

__all__ = [
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ConsistentHash",
    "MachineRoomNearby",
    "Strategy",
]


class Strategy(Protocol):
    """A strategy: a name and ``allocate`` (Apache's ``AllocateMessageQueueStrategy``).

    Example:
        >>> strategy: Strategy = AveragelyByCircle()
        >>> strategy.name
        'AVG_BY_CIRCLE'
    """

    @property
    def name(self) -> str:
        """The name that Apache's tools show."""

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client.

        Args:
            client_id: The client.
            queues: All queues of the topic, sorted.
            client_ids: All members of the group, sorted. Any other client gets nothing.

        Raises:
            ConfigError: The id or one of the lists is empty.
        """


class Averagely:
    """``AVG``, the default: a block of neighbouring queues for each client.

    Example:
        >>> queues = [QueueId("orders", "broker-a", number) for number in range(4)]
        >>> [queue.queue_id for queue in Averagely().allocate("a", queues, ["a", "b", "c"])]
        [0, 1]
    """

    name = "AVG"

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client; see :meth:`Strategy.allocate`."""
        places = _core.allocate_average(client_id, len(queues), client_ids)
        return [queues[place] for place in places]


class AveragelyByCircle:
    """``AVG_BY_CIRCLE``: each client in turn gets a queue.

    Example:
        >>> queues = [QueueId("orders", "broker-a", number) for number in range(4)]
        >>> [queue.queue_id for queue in AveragelyByCircle().allocate("a", queues, ["a", "b", "c"])]
        [0, 3]
    """

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client; see :meth:`Strategy.allocate`."""
        places = _core.allocate_average_by_circle(client_id, len(queues), client_ids)
        return [queues[place] for place in places]


class ConsistentHash:
    """``CONSISTENT_HASH``: queues and clients on a ring; a client that joins moves few queues.

    Args:
        virtual_nodes: Points of each client on the ring, 1 to 10,000; more make even shares.

    Example:
        >>> queues = [QueueId("orders", "broker-a", number) for number in range(4)]
        >>> [queue.queue_id for queue in ConsistentHash().allocate("a", queues, ["a", "b"])]
        [0, 2, 3]
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = 10) -> None:
        self.virtual_nodes = virtual_nodes

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client; see :meth:`Strategy.allocate`.

        Raises:
            ConfigError: As there, or ``virtual_nodes`` is out of its range.
        """
        places = _core.allocate_consistent_hash(client_id, queues, client_ids, self.virtual_nodes)
        return [queues[place] for place in places]


class ByMachineRoom:
    """``MACHINE_ROOM``: only queues of brokers in some rooms, a block for each client.

    The part of a broker's name before the ``@`` is its room: ``room1@broker-a``. No client reads
    queues of brokers in other rooms.

    Args:
        rooms: The rooms to read from.

    Example:
        >>> queues = [QueueId("orders", "north@a", 0), QueueId("orders", "south@b", 0)]
        >>> [queue.broker for queue in ByMachineRoom(["north"]).allocate("a", queues, ["a"])]
        ['north@a']
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = [rooms] if isinstance(rooms, str) else sorted(set(rooms))

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client; see :meth:`Strategy.allocate`."""
        brokers = [queue.broker for queue in queues]
        places = _core.allocate_machine_room(client_id, brokers, client_ids, self.rooms)
        return [queues[place] for place in places]


class MachineRoomNearby:
    """``MACHINE_ROOM_NEARBY``: clients share their room's queues; all share an empty room's.

    Args:
        strategy: How queues are allocated inside a room, and those of rooms without clients.
        room_of_queue: Returns the room of a queue's broker.
        room_of_client: Returns the room of a client id.

    Example:
        >>> nearby = MachineRoomNearby(
        ...     Averagely(),
        ...     room_of_queue=lambda queue: queue.broker.split("@")[0],
        ...     room_of_client=lambda client_id: client_id.split("@")[0],
        ... )
        >>> queues = [QueueId("orders", "north@a", 0), QueueId("orders", "south@b", 0)]
        >>> [queue.broker for queue in nearby.allocate("south@1", queues, ["north@1", "south@1"])]
        ['south@b']
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        room_of_queue: Callable[[QueueId], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self.strategy = strategy
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    @property
    def name(self) -> str:
        """``MACHINE_ROOM_NEARBY-`` and the inner strategy's name."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self, client_id: str, queues: Sequence[QueueId], client_ids: Sequence[str]
    ) -> list[QueueId]:
        """Return the queues of one client; see :meth:`Strategy.allocate`.

        Raises:
            ConfigError: As there, or a room is the empty text.
        """
        shares = _core.allocate_nearby(
            client_id,
            [self._room_of_queue(queue) for queue in queues],
            client_ids,
            [self._room_of_client(one) for one in client_ids],
        )
        found: list[QueueId] = []
        for queue_places, client_places in shares:
            shared = [queues[place] for place in queue_places]
            sharing = [client_ids[place] for place in client_places]
            found += self.strategy.allocate(client_id, shared, sharing)
        return found


class ByConfig:
    """``CONFIG``: the configured queues, regardless of the group's other members.

    Args:
        queues: This client's queues.

    Example:
        >>> mine = ByConfig([QueueId("orders", "broker-a", 2)])
        >>> mine.allocate("a", [], ["a", "b"])
        [QueueId(topic='orders', broker='broker-a', queue_id=2)]
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[QueueId]) -> None:
        self.queues = list(queues)

    def allocate(
        self,
        client_id: str,
        queues: Sequence[QueueId],
        client_ids: Sequence[str],
    ) -> list[QueueId]:
        """Return the configured queues."""
        return list(self.queues)
