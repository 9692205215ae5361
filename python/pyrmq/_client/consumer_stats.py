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
    """The state of an assigned queue, or of a topic on a broker if messages are popped.

    Attributes:
        position: The offset that a commit would name; -1 until the start is known, and where
            messages are popped: no member owns a queue there.
        lag: Messages from there to the end of the queue, as of its broker's last answer; None
            before the first answer, and if messages are popped.
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
    """The counters of a consumer. Each name is also a key: ``stats()["done"]``.

    Rates and mean times are those of the last minute, or since the start if that is shorter.

    Attributes:
        done: Messages that listeners have handled, or that a `SimpleConsumer` has acknowledged. 0
            if messages are polled.
        later: Messages that will be delivered again; of a `SimpleConsumer` those that it gave back.
        dead: Dead letters. With ``order="none"`` and without ``max_tries`` those that the broker
            makes after the last try count as `later`.
        unfit: Bodies that do not fit the listener's annotation; they are dead letters.
        unreadable: Messages that cannot be read, and were skipped.
        timed_out: Messages of calls past their time limit.
        in_flight: Messages that listeners have now; of a `SimpleConsumer` those that it has
            returned, which are neither acknowledged nor given back, and whose time is not over. A
            receipt that was kept as text does not change it.
        queues: How many queues the consumer has, including those of the retry topic. If messages
            are popped from any queue, each topic on each broker counts once, with the id -1.
        received_per_s: Messages fetched per second.
        done_per_s: Messages handled or acknowledged per second; if messages are polled, those that
            a later poll has confirmed.
        failed_per_s: Messages per second whose calls failed.
        pull_ms: Mean time of a pull or pop that returned messages, in milliseconds, including the
            time for which its broker held it.
        call_ms: Mean time that a listener had a message, in milliseconds; of a `SimpleConsumer`
            from its return to its acknowledgement.
        waiting: Messages that were fetched and not handed out.
        waiting_bytes: Bytes in memory of messages that were fetched and are not done; what a
            `SimpleConsumer` has returned is not counted.
        renewed: How often the invisible time of a popped message was renewed.
        lag: Messages that are not done, of the queues whose brokers have answered. Brokers do not
            report it for popped messages.
        assigned: The state of each queue.

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
