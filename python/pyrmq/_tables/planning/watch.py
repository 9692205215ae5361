"""Watches a stream's queues: which are in order, which are away, which have lost messages.

Away is not gone: the messages of a broker that does not answer are unknown, so its queues keep
their positions. Only an answer of a broker shows a loss:

* it does not know the topic, for ``timeoutMs``;
* a queue of a master ends before the position, for ``timeoutMs``: a broker that was killed rebuilds
  its queues from the log and shows fewer messages meanwhile. A slave may be behind its master;
* the message before the position is not the one that was read: the topic was created again, or the
  broker lost messages and reused their offsets. This is checked after each start, when a broker may
  have been restarted, and before a queue that was shorter or gone counts as good again: it may have
  been created again and filled within ``timeoutMs``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq._tables.errors import BrokerAway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyrmq._tables.offsets import Mark, Position, Queue
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.cluster import Cluster, ClusterSnapshot

__all__ = ["Watch", "another"]

_log = logging.getLogger("pyrmq.spark")
_WARN_S = 2.0
"""Time for which a broker may be away without a warning."""
_UNSEEN_S = 0.5
"""Time between two checks in which a broker can have been restarted."""


@dataclass
class Watch:
    """State of a stream's brokers and queues between two checks.

    Args:
        options: the stream's options.
        cluster: where to read the messages before positions.
        clock: seconds, monotonic.
    """

    options: Options
    cluster: Cluster
    clock: Callable[[], float]
    _away_since: dict[str, float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _seen_at: dict[str, float] = field(default_factory=dict)
    _unchecked: set[str] = field(default_factory=set)
    _wrong_since: dict[Queue, float] = field(default_factory=dict)
    _to_compare: dict[Queue, float | None] = field(default_factory=dict)
    """Queues that were shorter or gone, and since when they no longer are."""

    @property
    def uncompared(self) -> set[Queue]:
        """Queues that were shorter or gone and may have other messages now: not to be read yet."""
        return set(self._to_compare)

    def record_brokers(self, snapshot: ClusterSnapshot, needed: set[str]) -> None:
        """Record which brokers answered, and warn of brokers that left or are back.

        Args:
            snapshot: the brokers' answers.
            needed: brokers where the stream has positions.

        Raises:
            BrokerAway: one did not answer for longer than ``awayMs``.
        """
        now = self.clock()
        for broker in snapshot.brokers | {broker for _, broker in snapshot.gone}:
            if broker not in snapshot.away:
                self._here(broker, now)
        for broker in sorted(needed & snapshot.away.keys()):
            since = self._away_since.setdefault(broker, now)
            self._unchecked.add(broker)
            away = snapshot.away[broker]
            where = f"broker {broker} ({away.address or 'no address'})"
            text = f"{where} has been away for {now - since:.0f} s: {away.cause}"
            if now - since >= _WARN_S and broker not in self._warned:
                self._warned.add(broker)
                _log.warning("%s; the stream goes on without it", text)
            if 0 < self.options.away_ms / 1000 <= now - since:
                raise BrokerAway(
                    f"{text}. Nothing is lost: start it and then the query, which continues at its"
                    " position; option awayMs limits how long a stream waits"
                )

    def _here(self, broker: str, now: float) -> None:
        since = self._away_since.pop(broker, None)
        if broker in self._warned:
            self._warned.discard(broker)
            _log.warning("broker %s is back after %.0f s", broker, now - (since or now))
        seen = self._seen_at.get(broker)
        if seen is None or now - seen > _UNSEEN_S:
            self._unchecked.add(broker)
        self._seen_at[broker] = now

    def losses(self, position: Position, snapshot: ClusterSnapshot) -> dict[Queue, str]:
        """Return the queues that have lost messages, each with what happened."""
        found: dict[Queue, str] = {}
        for queue, stands in position.offsets.items():
            if queue.broker in snapshot.away:
                continue
            wrong = self._wrong(queue, stands, snapshot)
            if wrong is None:
                self._wrong_since.pop(queue, None)
            elif self._lasts(queue):
                found[queue] = wrong
        return found | self._other_messages(position, snapshot)

    def is_waiting(self, position: Position, snapshot: ClusterSnapshot) -> bool:
        """Return whether a queue looks wrong, but not for long enough to count as lost."""
        return any(
            queue.broker not in snapshot.away
            and self._wrong(queue, stands, snapshot) is not None
            and not self._lasts(queue)
            for queue, stands in position.offsets.items()
        )

    def settled(self, queue: Queue) -> None:
        """Forget what was wrong with a queue: the stream continues at another position."""
        self._wrong_since.pop(queue, None)
        self._to_compare.pop(queue, None)

    def _wrong(self, queue: Queue, stands: int, snapshot: ClusterSnapshot) -> str | None:
        wrong = self._fault(queue, stands, snapshot)
        if wrong is not None:
            self._to_compare[queue] = None
        return wrong

    @staticmethod
    def _fault(queue: Queue, stands: int, snapshot: ClusterSnapshot) -> str | None:
        held = snapshot.bounds.get(queue)
        if held is not None and held.highest >= stands:
            return None
        if queue.broker in snapshot.slaves:
            # It is behind its master, which has the messages.
            return None
        if held is not None:
            return f"{queue}: was at {stands}, now has {held.lowest} to {held.highest}"
        if (queue.topic, queue.broker) in snapshot.gone:
            return f"{queue}: was at {stands}, now the topic no longer exists"
        return (
            f"{queue}: was at {stands}, now it cannot be read, although its messages are still"
            " stored: raise readQueueNums of the topic"
        )

    def _lasts(self, queue: Queue) -> bool:
        since = self._wrong_since.setdefault(queue, self.clock())
        return self.clock() - since >= self.options.timeout_ms / 1000

    def _other_messages(self, position: Position, snapshot: ClusterSnapshot) -> dict[Queue, str]:
        answered = snapshot.brokers - snapshot.away.keys()
        brokers = self._unchecked & answered
        self._unchecked -= brokers
        there: dict[Queue, int] = {}
        for queue, stands in position.offsets.items():
            held = snapshot.bounds.get(queue)
            if held is None or queue.broker not in answered:
                continue
            if held.highest < stands:
                # It may still be reading its log again.
                if queue.broker in brokers:
                    self._unchecked.add(queue.broker)
            elif queue not in position.marks or stands <= held.lowest:
                self._to_compare.pop(queue, None)
            elif queue.broker in brokers or queue in self._to_compare:
                there[queue] = stands
        found = self.cluster.marks(there) if there else {}
        self._compared(there, found)
        return {
            queue: another(queue, stands, position.marks[queue], found[queue])
            for queue, stands in there.items()
            if queue in found and found[queue] != position.marks[queue]
        }

    def _compared(self, compared: Iterable[Queue], found: Mapping[Queue, Mark]) -> None:
        """Stop comparing; a message that is unavailable for ``timeoutMs`` does not exist."""
        now = self.clock()
        for queue in self._to_compare.keys() & set(compared):
            since = self._to_compare[queue]
            if queue in found or now - (since or now) >= self.options.timeout_ms / 1000:
                del self._to_compare[queue]
            else:
                self._to_compare[queue] = since or now


def another(queue: Queue, stands: int, was: Mark, is_now: Mark) -> str:
    """Report that the message before a position is not the one that was read."""
    return (
        f"{queue}: was at {stands} after the message at {was.log_position} of the log, stored at"
        f" {was.stored_ms}; now another one is there, at {is_now.log_position}, stored at"
        f" {is_now.stored_ms}: the topic was created again, or its broker lost messages and"
        " reused their offsets"
    )
