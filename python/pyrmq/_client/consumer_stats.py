"""The counters of a consumer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq.message import QueueId

if TYPE_CHECKING:
    from pyrmq._core import ConsumerControl, SimpleConsumer

__all__ = ["ConsumerStats", "QueueStats", "consumer_stats"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How an assigned queue stands, or a topic on a broker that is popped.

    Attributes:
        position: The offset that a commit would name; -1 until the start is known, and where
            messages are popped: nobody owns a queue there.
        lag: Messages from there to the end of the queue, as its broker answered last; None before
            it has, and where messages are popped.
        waiting: Messages that were fetched and not handed out.
        waiting_bytes: Bytes of messages that were fetched and are not done.
        in_flight: Messages that listeners, or callers of `receive`, have.
    """

    position: int
    lag: int | None
    waiting: int
    waiting_bytes: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """What a consumer does. Each name is a key, too: ``stats()["done"]``.

    Rates and mean times are those of the last minute, or since the start where that is shorter.

    Attributes:
        done: Messages that listeners have handled, or that a `SimpleConsumer` has acknowledged. 0
            where messages are polled.
        later: Messages that come again; of a `SimpleConsumer` those that it has given back.
        dead: Dead letters. With ``order="none"`` and without ``max_tries`` those that the broker
            makes after the last try count as `later`.
        unfit: Bodies that do not fit the listener's annotation; they are dead letters.
        unreadable: Messages that cannot be read, and were passed over.
        timed_out: Messages of calls past their time limit.
        in_flight: Messages that listeners have now; of a `SimpleConsumer` those that it has
            returned, which are neither acknowledged nor given back, and whose time is not over. A
            receipt that was kept as text does not change it.
        queues: How many queues the consumer has, those of the retry topic included. Where messages
            are popped from any queue, each topic on each broker counts once, with the id -1.
        received_per_s: Messages fetched a second.
        done_per_s: Messages handled or acknowledged a second; where messages are polled those that
            a later poll has confirmed.
        failed_per_s: Messages a second whose calls failed.
        pull_ms: Mean time of a pull or pop that brought messages, in milliseconds, with the time
            for which its broker held it.
        call_ms: Mean time that a listener had a message, in milliseconds; of a `SimpleConsumer`
            from its return to its acknowledgement.
        waiting: Messages that were fetched and not handed out.
        waiting_bytes: Bytes in memory of messages that were fetched and are not done; what a
            `SimpleConsumer` has returned is not counted.
        renewed: How often the invisible time of a popped message was renewed.
        lag: Messages that are not done, of the queues whose brokers have answered. Where messages
            are popped brokers do not tell it.
        assigned: How each queue stands.

    Example:
        >>> ConsumerStats(done=3)["done"]
        3
    """

    done: int = 0
    later: int = 0
    dead: int = 0
    unfit: int = 0
    unreadable: int = 0
    timed_out: int = 0
    in_flight: int = 0
    queues: int = 0
    received_per_s: float = 0.0
    done_per_s: float = 0.0
    failed_per_s: float = 0.0
    pull_ms: float = 0.0
    call_ms: float = 0.0
    waiting: int = 0
    waiting_bytes: int = 0
    renewed: int = 0
    lag: int = 0
    assigned: dict[QueueId, QueueStats] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - each name has its own type
        """Return a value by its name."""
        if name not in self.__slots__:
            raise KeyError(name)
        return getattr(self, name)


def consumer_stats(control: ConsumerControl | SimpleConsumer, **counts: int) -> ConsumerStats:
    """Read a native consumer, and add what Python counts.

    Args:
        control: The native consumer.
        counts: Values by name.
    """
    (received, done, failed, pull_ms, call_ms), states, renewed = control.stats()
    assigned = {
        QueueId(*place): QueueStats(position, lag, waiting, waiting_bytes, in_flight)
        for place, position, lag, waiting, waiting_bytes, in_flight in states
    }
    counts.setdefault("in_flight", sum(one.in_flight for one in assigned.values()))
    counts.setdefault("queues", len(assigned))
    return ConsumerStats(
        received_per_s=received,
        done_per_s=done,
        failed_per_s=failed,
        pull_ms=pull_ms,
        call_ms=call_ms,
        waiting=sum(one.waiting for one in assigned.values()),
        waiting_bytes=sum(one.waiting_bytes for one in assigned.values()),
        renewed=renewed,
        lag=sum(one.lag or 0 for one in assigned.values()),
        assigned=assigned,
        **counts,
    )
