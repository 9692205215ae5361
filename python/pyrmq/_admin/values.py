"""Results of the administration: brokers, queues, routes, offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """A broker: its master and replicas.

    Attributes:
        name: Broker name.
        cluster: Cluster name.
        addresses: ``host:port`` by broker id; id 0 is the master.
    """

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The master's address; None if there is none."""
        return self.addresses.get(0)


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """A topic's queues on one broker.

    Attributes:
        broker: Broker name.
        read_queues: Number of queues that may be read.
        write_queues: Number of queues that may be written to.
        perm: Permission bits: 4 read, 2 write, 1 new topics may copy its settings.
    """

    broker: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The route of a topic.

    Attributes:
        topic: Topic.
        brokers: Brokers that have it.
        queues: Its queues on each.
    """

    topic: str
    brokers: Sequence[BrokerAddresses]
    queues: Sequence[TopicQueues]


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """The offsets of a queue.

    Attributes:
        first: Offset of the oldest stored message.
        last: Offset that the next message will get.
        updated_ms: Time of the last message, ms since 1970; 0 without one.
    """

    first: int
    last: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The position of a group in a queue.

    Attributes:
        committed: Offset of its next message.
        last: Offset that the queue's next message will get.
        updated_ms: Store time of the last message that it has read, ms since 1970.
    """

    committed: int
    last: int
    updated_ms: int

    @property
    def lag(self) -> int:
        """Messages not read yet."""
        return max(0, self.last - max(0, self.committed))
