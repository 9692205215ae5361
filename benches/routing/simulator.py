"""Simulates a producer and scripted brokers: destinations, latencies and failures of sends.

Nothing sleeps: a send takes as long as its broker's script says, and time is the sum. The same
script runs under several rules, so only the rule causes a difference.

Example:
    >>> brokers = [Broker("a"), Broker("b", script=[(1000, 2000, 5.0)])]
    >>> outcome = simulate(Ours(), brokers, seconds=5)
    >>> outcome.errors
    0
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyrmq.routing import LatencyFaultTolerance, QueueSelector

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_MS = 3000.0
ATTEMPTS = 3
DETECT_EVERY_MS = 2000.0
DETECT_TIMEOUT_MS = 200.0
SILENT = float("inf")
"""Latency of a broker that does not answer."""

SCHEDULE = (
    (50, 0),
    (100, 0),
    (550, 2000),
    (1800, 5000),
    (3000, 6000),
    (5000, 10000),
    (15000, 30000),
)
"""Apache's latencies, and how long a broker is avoided, ms."""


@dataclass(frozen=True)
class Broker:
    """A broker with a script.

    Attributes:
        name: Its name.
        latency_ms: Usual latency of an answer.
        script: Rows of (from ms, to ms, latency in ms) that override it; ``SILENT``: no answer.
        loss: Share of requests that are never answered.
    """

    name: str
    latency_ms: float = 1.0
    script: tuple[tuple[float, float, float], ...] | list[tuple[float, float, float]] = ()
    loss: float = 0.0

    def answers_after(self, now_ms: float, chance: random.Random) -> float:
        """Return how long a request takes now."""
        if self.loss and chance.random() < self.loss:
            return SILENT
        for start, end, latency in self.script:
            if start <= now_ms < end:
                return latency
        return self.latency_ms


class Rule(Protocol):
    """How a producer selects queues and divides its timeout."""

    def choose(self, brokers: list[str], last: str | None, now_ms: float) -> int:
        """Return the index of the next queue."""
        ...

    def learn(self, broker: str, latency_ms: float, failed: bool, now_ms: float) -> None:  # noqa: FBT001
        """Record a finished attempt."""
        ...

    def share(self, left_ms: float, attempts_left: int) -> float:
        """Return the timeout of the next attempt."""
        ...

    def unreachable(self) -> list[str]:
        """Return the brokers that wait for a probe."""
        ...

    def answered(self, broker: str) -> None:
        """Record that a probe was answered."""
        ...


class Ours:
    """pyrmq's rule: `pyrmq.routing`, and a share of the timeout for each attempt."""

    def __init__(self) -> None:
        self._selector = QueueSelector(start=0)
        self._faults = LatencyFaultTolerance()
        self._failed: set[str] = set()

    def choose(self, brokers: list[str], last: str | None, now_ms: float) -> int:
        """Return the index of the next queue."""
        place = self._selector.select(
            brokers, last_broker=last, faults=self._faults, now_ms=int(now_ms)
        )
        assert place is not None
        return place

    def learn(self, broker: str, latency_ms: float, failed: bool, now_ms: float) -> None:  # noqa: FBT001
        """Record a finished attempt."""
        self._faults.update(
            broker,
            latency_ms=int(latency_ms),
            isolate=failed,
            reachable=not failed,
            now_ms=int(now_ms),
        )
        (self._failed.add if failed else self._failed.discard)(broker)

    def share(self, left_ms: float, attempts_left: int) -> float:
        """Return the timeout of the next attempt."""
        return left_ms / attempts_left

    def unreachable(self) -> list[str]:
        """Return the brokers that wait for a probe."""
        return sorted(self._failed)

    def answered(self, broker: str) -> None:
        """Record that a probe was answered: the broker is back once its time has passed."""
        self._failed.discard(broker)
        known = self._faults.get(broker)
        if known is not None:
            self._faults.update(broker, latency_ms=0, reachable=True, now_ms=known.until_ms)


class Apache:
    """The rule of `MQFaultStrategy` and `LatencyFaultToleranceImpl` 5.5 with its detector."""

    def __init__(self, start: int = 0) -> None:
        self._index = start
        self._until: dict[str, float] = {}
        self._reachable: dict[str, bool] = {}

    def choose(self, brokers: list[str], last: str | None, now_ms: float) -> int:
        """Return the index of the next queue."""
        passes: tuple[Callable[[str], bool], ...] = (
            lambda name: name != last and now_ms >= self._until.get(name, 0.0),
            lambda name: name != last and self._reachable.get(name, True),
            lambda name: True,
        )
        for may in passes:
            for _ in brokers:
                place = self._index % len(brokers)
                self._index += 1
                if may(brokers[place]):
                    return place
        raise AssertionError("no brokers")

    def learn(self, broker: str, latency_ms: float, failed: bool, now_ms: float) -> None:  # noqa: FBT001
        """Record a finished attempt."""
        measured = 10_000 if failed else latency_ms
        rows = [out for latency, out in SCHEDULE if measured >= latency]
        self._until[broker] = now_ms + (rows[-1] if rows else 0)
        self._reachable[broker] = not failed

    def share(self, left_ms: float, attempts_left: int) -> float:
        """Return all the remaining time, for every attempt."""
        del attempts_left
        return left_ms

    def unreachable(self) -> list[str]:
        """Return the brokers that wait for a probe."""
        return sorted(name for name, reachable in self._reachable.items() if not reachable)

    def answered(self, broker: str) -> None:
        """Record that a probe was answered."""
        self._reachable[broker] = True


@dataclass
class Outcome:
    """The result of a run.

    Attributes:
        took_ms: Start and duration of each send, ms.
        stored: Messages by broker.
        failed_at: Start of each failed send, ms.
    """

    took_ms: list[tuple[float, float]] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)
    failed_at: list[float] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of failed sends."""
        return len(self.failed_at)

    def percentile(self, share: float) -> float:
        """Return a percentile of the sends' durations, ms."""
        ordered = sorted(took for _, took in self.took_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def mean(self) -> float:
        """Return the mean of the sends' durations, ms."""
        return sum(took for _, took in self.took_ms) / len(self.took_ms)

    def share(self, broker: str) -> float:
        """Return a broker's share of the stored messages."""
        return self.stored.get(broker, 0) / max(1, sum(self.stored.values()))


def simulate(
    rule: Rule,
    brokers: list[Broker],
    *,
    seconds: float,
    queues: int = 4,
    every_ms: float = 10.0,
    seed: int = 7,
) -> Outcome:
    """Send one message after the other, at most one per `every_ms`, and record the results."""
    chance = random.Random(seed)
    names = [broker.name for broker in brokers for _ in range(queues)]
    by_name = {broker.name: broker for broker in brokers}
    outcome, now, probe_at = Outcome(), 0.0, DETECT_EVERY_MS
    while now < seconds * 1000:
        if now >= probe_at:
            for name in rule.unreachable():
                if by_name[name].answers_after(now, chance) <= DETECT_TIMEOUT_MS:
                    rule.answered(name)
            probe_at = now + DETECT_EVERY_MS
        began, last = now, None
        for attempt in range(ATTEMPTS):
            left = TIMEOUT_MS - (now - began)
            if left <= 0:
                outcome.failed_at.append(began)
                break
            name = names[rule.choose(names, last, now)]
            allowed = rule.share(left, ATTEMPTS - attempt)
            needed = by_name[name].answers_after(now, chance)
            failed = needed > allowed
            now += min(needed, allowed)
            rule.learn(name, min(needed, allowed), failed, now)
            if not failed:
                outcome.stored[name] = outcome.stored.get(name, 0) + 1
                break
            last = name
        else:
            outcome.failed_at.append(began)
        outcome.took_ms.append((began, now - began))
        now = max(now, began + every_ms)
    return outcome


SCRIPTS: dict[str, list[Broker]] = {
    "all healthy": [Broker("a"), Broker("b"), Broker("c")],
    "one silent for 20 s": [
        Broker("a"),
        Broker("b", script=[(10_000, 30_000, SILENT)]),
        Broker("c"),
    ],
    "one slow for 20 s": [Broker("a"), Broker("b", script=[(10_000, 30_000, 800.0)]), Broker("c")],
    "one pauses 1 s each 10 s": [
        Broker("a"),
        Broker("b", script=[(t * 10_000.0, t * 10_000.0 + 1000, 1000.0) for t in range(1, 6)]),
        Broker("c"),
    ],
    "one loses 5 %": [Broker("a"), Broker("b", loss=0.05), Broker("c")],
    "two of three silent": [
        Broker("a"),
        Broker("b", script=[(10_000, 30_000, SILENT)]),
        Broker("c", script=[(15_000, 40_000, SILENT)]),
    ],
}
"""Faults of brokers within a minute."""
