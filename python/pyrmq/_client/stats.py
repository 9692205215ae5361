"""The counters of a producer."""

from typing import NamedTuple, Protocol

__all__ = ["BrokerState", "ProducerStats", "stats_of"]


class BrokerState(NamedTuple):
    """What a producer with ``latency_fault`` knows of a broker that was slow or failed.

    Attributes:
        broker: Broker name.
        latency_ms: Latency of its last attempt.
        left_out_ms: It is left out for this long from now on.
        reachable: False while a probe is awaited.
    """

    broker: str
    latency_ms: int
    left_out_ms: int
    reachable: bool


class ProducerStats(NamedTuple):
    """Counters of a producer since it was made.

    Attributes:
        confirmed: Messages that a broker has stored.
        failed: Messages that were given up.
        retries: Attempts beyond the first, in frames.
        frames: Frames sent; a batch is one.
        in_flight: Messages on their way now, with those whose callback has not run.
        in_flight_bytes: Bytes of bodies on their way now.
        batches: Frames that were batches.
        batched: Messages in them.
        seconds: Since the producer was made.
        brokers: Brokers that were slow or failed, with ``latency_fault``.
        window: Messages that may be on their way now: ``max_in_flight``, less after a broker has
            said that it is busy.
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
    """A native producer, as far as its statistics need it."""

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
