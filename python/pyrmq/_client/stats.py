"""The counters of a producer."""

from typing import NamedTuple, Protocol

__all__ = ["BrokerState", "ProducerStats", "stats_of"]


class BrokerState(NamedTuple):
    """What a producer with ``latency_fault`` knows about a broker that was slow or failed.

    Attributes:
        broker: Broker name.
        latency_ms: Latency of its last attempt.
        left_out_ms: Remaining time for which it is avoided.
        reachable: False while a probe is awaited.
    """

    broker: str
    latency_ms: int
    left_out_ms: int
    reachable: bool


class ProducerStats(NamedTuple):
    """Counters of a producer since it was created.

    Attributes:
        confirmed: Messages that a broker has stored.
        failed: Messages that failed.
        retries: Attempts beyond the first, in frames.
        frames: Frames sent; a batch is one.
        in_flight: Messages in flight, including those whose callback has not run.
        in_flight_bytes: Bytes of bodies in flight.
        batches: Frames that were batches.
        batched: Messages in them.
        seconds: Time since the producer was created.
        brokers: Brokers that were slow or failed, with ``latency_fault``.
        window: Messages that may be in flight now: ``max_in_flight``, or less after a broker has
            reported that it is busy.
        dropped_traces: Traces that were dropped because too many waited.
    """

    confirmed: int
    failed: int
    retries: int
    frames: int
    in_flight: int
    in_flight_bytes: int = 0
    batches: int = 0
    batched: int = 0
    seconds: float = 0.0
    brokers: tuple[BrokerState, ...] = ()
    window: int = 0
    dropped_traces: int = 0

    @property
    def per_second(self) -> float:
        """Messages confirmed per second, on average since the start."""
        return self.confirmed / self.seconds if self.seconds else 0.0

    @property
    def batch_size(self) -> float:
        """Messages of a batch, on average."""
        return self.batched / self.batches if self.batches else 0.0


class Counting(Protocol):
    """A native producer: the part that its statistics need."""

    def stats(self) -> list[tuple[str, int]]:
        """Counters by name."""
        ...

    def brokers(self) -> list[tuple[str, int, int, bool]]:
        """The fault table."""
        ...


def stats_of(core: Counting, seconds: float) -> ProducerStats:
    """Read a native producer's counters."""
    brokers = tuple(BrokerState(*broker) for broker in core.brokers())
    return ProducerStats(**dict(core.stats()), seconds=seconds, brokers=brokers)
