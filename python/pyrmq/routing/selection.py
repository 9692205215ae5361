"""Queue selection and latency fault tolerance: :class:`QueueSelector` and its parts.

Example:
    >>> selector = QueueSelector(start=0)
    >>> faults = LatencyFaultTolerance()
    >>> faults.update("broker-a", latency_ms=700, now_ms=0)
    >>> queues = ["broker-a", "broker-a", "broker-b"]
    >>> queues[selector.select(queues, faults=faults, now_ms=10)]
    'broker-b'
    >>> faults.is_available("broker-a", now_ms=2000)
    True
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyrmq import _core
from pyrmq.errors import ConfigError
from pyrmq.message import QueueId

__all__ = ["Fault", "LatencyFaultTolerance", "MachineRoom", "QueueSelector"]


class Fault(NamedTuple):
    """The state of a broker.

    Attributes:
        latency_ms: Latency of its last attempt.
        until_ms: It is avoided until this time of your clock.
        reachable: False while a probe is awaited.
    """

    latency_ms: int
    until_ms: int
    reachable: bool


class LatencyFaultTolerance:
    """Avoids brokers that were slow or failed (Apache's ``LatencyFaultToleranceImpl``).

    A broker is used again when its time has passed. Use any clock that only goes forward.

    Args:
        schedule: Rows of (latency from, avoided for), in ms, ascending. Default: Apache's.

    Raises:
        ValueError: The latencies do not ascend.

    Example:
        >>> LatencyFaultTolerance([(100, 1000)]).is_available("broker-a", now_ms=0)
        True
    """

    def __init__(self, schedule: Sequence[tuple[int, int]] | None = None) -> None:
        self._core = _core.LatencyFaultTolerance(schedule)

    def update(
        self,
        broker: str,
        *,
        latency_ms: int,
        now_ms: int,
        isolate: bool = False,
        reachable: bool = True,
    ) -> None:
        """Record the outcome of an attempt.

        Args:
            broker: Broker name.
            latency_ms: Its latency.
            now_ms: The current time.
            isolate: Whether it failed; this counts as 10 s, whatever its latency.
            reachable: False: the broker is avoided until a probe succeeds.

        Example:
            >>> LatencyFaultTolerance().update("broker-a", latency_ms=12, now_ms=0)
        """
        self._core.update(broker, latency_ms, isolate, reachable, now_ms)

    def is_available(self, broker: str, *, now_ms: int) -> bool:
        """Check whether a broker is available; an unknown broker is.

        Example:
            >>> LatencyFaultTolerance().is_available("broker-a", now_ms=0)
            True
        """
        return self._core.is_available(broker, now_ms)

    def is_reachable(self, broker: str) -> bool:
        """Check whether a broker is reachable: no probe of it is awaited.

        Example:
            >>> LatencyFaultTolerance().is_reachable("broker-a")
            True
        """
        return self._core.is_reachable(broker)

    def remove(self, broker: str) -> None:
        """Forget a broker.

        Example:
            >>> LatencyFaultTolerance().remove("broker-a")
        """
        self._core.remove(broker)

    def get(self, broker: str) -> Fault | None:
        """Return the state of a broker; None if it is unknown.

        Example:
            >>> LatencyFaultTolerance().get("broker-a") is None
            True
        """
        found = self._core.get(broker)
        return None if found is None else Fault(*found)


class QueueSelector:
    """Chooses queues in turn (Apache's ``TopicPublishInfo`` and ``MQFaultStrategy``).

    Args:
        start: Where to begin. A random value keeps clients from choosing the same queues.

    Example:
        >>> selector = QueueSelector(start=0)
        >>> [selector.select(["a", "a", "b"]) for _ in range(4)]
        [0, 1, 2, 0]
    """

    def __init__(self, start: int = 0) -> None:
        self._core = _core.QueueSelector(start)

    def select(
        self,
        brokers: Sequence[str],
        *,
        last_broker: str | None = None,
        faults: LatencyFaultTolerance | None = None,
        now_ms: int = 0,
    ) -> int | None:
        """Choose a queue.

        Args:
            brokers: For each queue the name of its broker.
            last_broker: Broker of the failed attempt. Another one is chosen if there is one.
            faults: Brokers to avoid: an available broker comes first, then a reachable one, then
                any.
            now_ms: The current time, for ``faults``.

        Returns:
            The index of the queue in ``brokers``; None if that is empty.

        Example:
            >>> QueueSelector().select(["a", "b"], last_broker="a")
            1
        """
        table = None if faults is None else faults._core
        return self._core.select(list(brokers), last_broker, table, now_ms)


class MachineRoom:
    """A ``queue=`` function: the queues of the brokers in some machine rooms, in turn.

    The part of a broker's name before the ``@`` is its room (``room1@broker-a``), as in Apache's
    ``AllocateMessageQueueByMachineRoom``.

    Args:
        rooms: The rooms to send to.
        elsewhere: Use the other brokers if none of these rooms has the topic. False: raise.

    Raises:
        ConfigError: When called without ``elsewhere`` and no broker of these rooms has the topic.

    Example:
        >>> queues = [QueueId("t", "north@a", 0), QueueId("t", "south@b", 0)]
        >>> MachineRoom(["south"])(queues).broker
        'south@b'
    """

    def __init__(self, rooms: Iterable[str], *, elsewhere: bool = True) -> None:
        self._rooms = frozenset([rooms] if isinstance(rooms, str) else rooms)
        self._elsewhere = elsewhere
        self._turn = QueueSelector()

    def __call__(self, queues: Sequence[QueueId]) -> QueueId:
        """Choose one of a topic's queues."""
        near = [queue for queue in queues if self._is_near(queue.broker)]
        if not near and not self._elsewhere:
            raise ConfigError(
                f"no broker of the machine rooms {', '.join(sorted(self._rooms))} has a queue: "
                f"there are {', '.join(sorted({queue.broker for queue in queues})) or 'none'}"
            )
        chosen = near or queues
        place = self._turn.select([queue.broker for queue in chosen])
        if place is None:
            raise ConfigError("the topic has no queue to choose from")
        return chosen[place]

    def _is_near(self, broker: str) -> bool:
        room, separator, _ = broker.partition("@")
        return bool(separator) and room in self._rooms
