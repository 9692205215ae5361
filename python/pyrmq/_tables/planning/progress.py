"""A stream's progress through the queues: the offsets of each micro-batch. No Spark, no I/O.

Spark drives it from one long-lived process on the driver: `initial` once for a new query, `latest`
for every batch (and every 10 ms while idle), `tasks` to plan one. Notes:

* Spark compares offsets as text, and equal text means "nothing new": the given start is then
  returned unchanged.
* The end of a query's first batch records where it began, and the end of a later one where the
  queues began that it has first (offsets.py says why).
* Positions are never dropped: a queue whose broker does not answer keeps its own (watch.py), and
  so does one that the options leave out.
* A batch that this process did not plan is compared with what its queues hold (replay.py).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq._tables.errors import BrokerAway, OffsetError
from pyrmq._tables.offsets import Bounds, Mark, Offsets, Position, Queue, parse_version, to_json
from pyrmq._tables.planning import cluster as clusters
from pyrmq._tables.planning.byte_limit import limit_bytes
from pyrmq._tables.planning.cluster import NO_ANSWER, ClusterSnapshot
from pyrmq._tables.planning.plan import limit_rows
from pyrmq._tables.planning.replay import Replay
from pyrmq._tables.planning.tasks import report_loss, tasks_of
from pyrmq._tables.planning.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.cluster import Cluster
    from pyrmq._tables.planning.plan import Range

__all__ = ["Progress"]

_log = logging.getLogger("pyrmq.spark")
_PAUSE_S = 0.2
_QUEUES_A_SECOND = 1600
"""An idle stream of many queues checks less often, but at least once a second."""
_UNTOLD = (
    "{queue}: was at {at}, but {cause} when the query started, and Spark 4.1 logged an end without"
    " it. Nothing is lost, but the query would go on at another offset. {mend}, delete the newest"
    " file of the checkpoint's folder `offsets` (`commits` does not have it), and start the query."
    " With the option `brokers` a start waits up to timeoutMs for the brokers that it names; Spark"
    " 4.2 needs neither"
)


@dataclass
class Progress:
    """The offsets of one streaming query.

    Args:
        options: the stream's options.
        cluster: where to read queues and their bounds.
        clock: seconds, monotonic.
        sleep: waits seconds.
        now_ms: milliseconds since 1970.
    """

    options: Options
    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _initial: Position | None = None
    _seen: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    _refreshed_at: float | None = None
    _topics: tuple[str, ...] = ()
    _topics_at: float | None = None
    _frozen: dict[Queue, Bounds] | None = None
    _absent: frozenset[str] = frozenset()
    _begins: Offsets = field(default_factory=dict)
    _reported: set[Queue] = field(default_factory=set)
    _last_batch_at: float | None = None
    _planned: dict[str, Any] | None = None
    _since_ms: int | None = None
    """When the query of the planned batch began, which its end may not say (Spark 4.1)."""
    _ended: dict[str, Any] | None = None
    """The last end that this process returned."""

    def __post_init__(self) -> None:
        """Start without knowledge of any broker."""
        self._watch = Watch(self.options, self.cluster, self.clock)

    def initial(self) -> dict[str, Any]:
        """Return where a new query begins; the same answer at every call."""
        return to_json(self._beginning())

    def _beginning(self) -> Position:
        if self._initial is None:
            since_ms = self.options.starting_timestamp_ms
            if since_ms is None and self.options.starting_times is not None:
                since_ms = min(self.options.starting_times.values(), default=None)
            elif since_ms is None and self.options.starting == "latest":
                since_ms = self.now_ms()
            snapshot = clusters.await_brokers(
                self.options,
                self.cluster,
                all_of_route=False,
                clock=self.clock,
                sleep=self.sleep,
            )
            offsets = clusters.starting(self.options, self.cluster, snapshot.bounds)
            self._initial = Position(offsets, since_ms=since_ms)
        return self._initial

    def latest(
        self, start: Mapping[str, Any] | None, *, limit: int, wait_for_more: bool = True
    ) -> dict[str, Any]:
        """Return the end of the next batch, or `start` itself when there is nothing to do.

        Args:
            start: the stream's position; None from a Spark that does not pass it (4.1): then it is
                the end of the last batch that was planned here. Before the first one, such a Spark
                gets everything.
            limit: maximum rows of the batch; 0: no limit.
            wait_for_more: honour ``minOffsetsPerTrigger`` and ``maxBytesPerTrigger``.

        Raises:
            DataLossError: unread messages are gone and the options say that this is an error.
            BrokerAway: a broker did not answer for longer than ``awayMs``.
            OffsetError: the position belongs to other topics.
        """
        if start is None and self._planned is None:
            self._ended = self._latest_without_start()
        else:
            given = dict(start if start is not None else self._planned or {})
            self._ended = self._latest_after(given, limit, wait_for_more=wait_for_more)
        return self._ended

    def _latest_after(
        self, given: dict[str, Any], limit: int, *, wait_for_more: bool
    ) -> dict[str, Any]:
        whole = parse_version(given)
        if given == self._planned:
            whole = whole._replace(since_ms=self._since_ms)
        position = self._wanted(whole)
        first = self._is_first(position)
        self._refresh_if_due(position)
        begun = self._begun(position)
        standing = {**position.offsets, **begun}
        # A queue that starts again after a loss is read from there, whatever it was before.
        end = self._ends(standing, self._watch.uncompared - begun.keys())
        left = self._left(standing, end)
        waiting = sum(max(0, end[queue] - left[queue]) for queue in end)
        # A loss is found once: a batch that waits for more rows would begin at the old position.
        waits = wait_for_more and not begun.keys() & position.offsets.keys()
        if (waiting == 0 and end == position.offsets) or (waits and self._too_few(waiting)):
            if not first:
                return given
            return to_json(position._replace(start=position.offsets))
        self._last_batch_at = self.clock()
        end = limit_rows(left, end, limit)
        if wait_for_more:
            end = limit_bytes(left, end, self.options.max_bytes_per_trigger, self.cluster.sizes)
        for queue in begun:
            self._watch.settled(queue)
        start_offsets = position.offsets if first else None
        kept_at = {queue: at for queue, at in position.offsets.items() if queue not in begun}
        marks = self._marks(position._replace(offsets=kept_at), end)
        kept = {q: mark for q, mark in whole.marks.items() if q not in position.offsets}
        return to_json(
            Position(
                whole.offsets | end, start_offsets, begun, position.since_ms, {**kept, **marks}
            )
        )

    def _wanted(self, position: Position) -> Position:
        """Return a position without the queues that the options leave out.

        Raises:
            OffsetError: they leave some out, and their unread messages would be lost.
        """
        kept = {q: at for q, at in position.offsets.items() if clusters.is_wanted(self.options, q)}
        if len(kept) == len(position.offsets):
            return position
        if self.options.fail_on_data_loss:
            self._refuse(sorted(position.offsets.keys() - kept.keys()))
        begun = {queue: at for queue, at in position.begun.items() if queue in kept}
        return position._replace(offsets=kept, begun=begun)

    def _refuse(self, left: list[Queue]) -> None:
        options = self.options
        topics = ", ".join(dict.fromkeys(queue.topic for queue in left))
        if options.queues:
            what = f"queues that option queues leaves out: {left[0]}"
        elif options.topic_pattern is not None:
            what = f"topics {topics}, which topicPattern {options.topic_pattern!r} does not match"
        else:
            what = f"topics {topics}, and option topic names {', '.join(options.topics)}"
        raise OffsetError(
            f"the checkpoint has positions of {what}: name them as well, or use another checkpoint;"
            " with failOnDataLoss=false the query goes on without them"
        )

    def _is_first(self, position: Position) -> bool:
        if self._initial is None or position.start is not None:
            return False
        return position.offsets == self._initial.offsets

    def report(self) -> dict[str, Any] | None:
        """Return the true ends of all queues, whatever the limits; None while unknown."""
        if not self._seen.bounds:
            return None
        ends = {queue: held.highest for queue, held in self._seen.bounds.items()}
        return to_json(Position(ends))

    def freeze(self) -> None:
        """Use the current ends as the end of the query (Trigger.AvailableNow)."""
        self._refresh({})
        self._frozen = dict(self._seen.bounds)
        self._absent = frozenset(self._seen.away)

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[Range]]:
        """Cut a batch into tasks.

        Raises:
            DataLossError: a part has expired and the options say that this is an error.
            BrokerAway: a broker that the batch needs has not answered for longer than ``awayMs``.
        """
        if start == end:
            return []
        is_replayed = self._ended != dict(end)
        upper, given = self._wanted(parse_version(end)), self._wanted(parse_version(start))
        self._planned = dict(end)
        # A recorded start is that of a query's first batch; Spark has requested its start.
        is_first = self._is_first(given) and upper.start is not None
        lower = {**((upper.start if is_first else None) or given.offsets), **upper.begun}
        wanted = {queue for queue, at in upper.offsets.items() if at != lower.get(queue)}
        is_untold = upper.start is not None and not is_first
        self._since_ms = upper.since_ms
        if upper.start is not None:
            # Spark 4.1 may have got this end from a process that did not know when the query began,
            # and a first batch that is read again has a start that is later than its end's.
            known = {given.since_ms} if is_untold else {given.since_ms, upper.since_ms}
            self._since_ms = min((at for at in known if at is not None), default=None)
        if is_untold:
            # An end before the start is refused below, and not awaited.
            wanted = {queue for queue in wanted if upper.offsets[queue] >= lower.get(queue, 0)}
        self._await_queues(upper.offsets, wanted, is_replayed=is_replayed)
        if is_untold:
            self._check_untold(given, upper, lower)
        there = {queue: at for queue, at in upper.offsets.items() if queue in self._seen.bounds}
        for queue, at in there.items():
            if at < lower.get(queue, 0):
                held = self._seen.bounds[queue]
                stood = f"{queue}: was at {lower[queue]}"
                self._lost(f"{stood}, now has {held.lowest} to {held.highest}")
                # Only an end that was planned without a start (Spark 4.1) is below it.
                lower[queue] = min(at, self._first_after(held, queue, given.marks.get(queue)))
        if is_untold:
            # Spark 4.1 got this end before it passed a start: nothing has compared the start yet.
            lower |= self._begun_anew(given, there, lower)
        if upper.start is not None:
            lower |= self._begun_late(self._since_ms, there, lower)
        if is_replayed:
            there |= self._left_of(given, upper, lower)
        return tasks_of(self.options, lower, there, self._seen.bounds, self.cluster)

    def _check_untold(self, start: Position, end: Position, lower: Offsets) -> None:
        """Refuse an end that Spark 4.1 got before it passed a start, if it is before the start.

        It lacks the queues of a broker that was away, and is too low in those of one that was
        reading its log again. Spark has logged it: the next batch would read what was read before.

        Raises:
            BrokerAway: there is such a queue.
            DataLossError: a queue no longer exists and the options say that this is an error.
        """
        stood = {
            queue: lower[queue]
            for queue, at in start.offsets.items()
            if end.offsets.get(queue, -1) < lower.get(queue, at)
            # A queue of which nothing was read begins where it would have gone on.
            if queue in end.offsets or at > 0 or start.since_ms is not None
        }
        begun = self.clock()
        while stood and self._is_short(stood) and not self._is_over(begun):
            self.sleep(_PAUSE_S)
            try:
                self._refresh(start.offsets)
            except BrokerAway:
                # Its text says that a restart suffices.
                break
        others = self._replay.others(start.marks, stood, self._seen.bounds)
        slaves = self._seen.slaves - self._seen.away.keys()
        for queue in sorted(stood):
            held = self._seen.bounds.get(queue)
            if queue.broker in slaves and queue not in others:
                # It is behind its master, which has the messages.
                cause, mend = "only a slave of its broker answered", "Start the master"
            elif held is None and (queue.topic, queue.broker) in self._seen.gone:
                self._lost(f"{queue}: was at {stood[queue]}, now the topic no longer exists")
                continue
            elif held is None and queue.broker in self._seen.brokers - self._seen.away.keys():
                cause, mend = "it could not be read", "Raise readQueueNums"
            elif held is None or (queue not in others and held.highest >= stood[queue]):
                cause, mend = "its broker was away", "Start the broker"
            else:
                # Its messages are lost; `tasks` says so.
                continue
            text = _UNTOLD.format(queue=queue, at=stood[queue], cause=cause, mend=mend)
            raise BrokerAway(text)

    def _is_short(self, stood: Offsets) -> bool:
        held = self._seen.bounds
        return any(queue not in held or held[queue].highest < at for queue, at in stood.items())

    def _is_over(self, begun: float) -> bool:
        return self.clock() - begun >= self.options.timeout_ms / 1000

    @property
    def _replay(self) -> Replay:
        return Replay(self.cluster, self.options.timeout_ms, self.clock, self.sleep)

    def _begun_anew(self, start: Position, there: Offsets, lower: Offsets) -> Offsets:
        """Return where a batch begins in queues whose message before its start is another one."""
        bounds = self._seen.bounds
        begins = {
            queue: at
            for queue, at in start.offsets.items()
            if lower.get(queue) == at <= there.get(queue, -1)
        }
        begun: Offsets = {}
        for queue, what in sorted(self._replay.others(start.marks, begins, bounds).items()):
            self._lost(what)
            after = self._first_after(bounds[queue], queue, start.marks[queue])
            begun[queue] = min(there[queue], after)
        return begun

    def _begun_late(self, since_ms: int | None, there: Offsets, lower: Offsets) -> Offsets:
        """Return where a batch begins in queues that its start lacks, and its end does not tell."""
        new = {queue: self._seen.bounds[queue] for queue in there if queue not in lower}
        if since_ms is None or not new:
            return {}
        begins = self.cluster.offsets_at(new, since_ms)
        return {queue: min(at, there[queue]) for queue, at in begins.items()}

    def _left_of(self, start: Position, end: Position, lower: Offsets) -> Offsets:
        """Return where a batch ends in queues that no longer have the planned messages.

        That is where the next batch begins after the loss: no message is read twice.
        """
        ends: Offsets = {}
        losses = self._replay.losses(start, end, lower, self._seen.bounds)
        for queue, what in sorted(losses.items()):
            self._lost(what)
            held, mark = self._seen.bounds[queue], end.marks.get(queue)
            after = self._first_after(held, queue, mark)
            ends[queue] = max(lower.get(queue, held.lowest), min(end.offsets[queue], after))
        return ends

    def _latest_without_start(self) -> dict[str, Any]:
        """Return the end of all queues, for a Spark that does not pass the stream's position.

        No limit applies there: after a restart such a Spark requests an end before it passes any
        start, and for Trigger.AvailableNow it requests it only once.
        """
        position = self._beginning()
        # A further request means that Spark has logged the last end, or that it is this one.
        before = Position({}) if self._ended is None else parse_version(self._ended)
        standing = {**position.offsets, **before.offsets}
        self._refresh_if_due(position._replace(offsets=standing))
        begun = self.clock()
        while self._is_unsettled(position, before) and not self._is_over(begun):
            self.sleep(_PAUSE_S)
            self._refresh(standing)
        bounds, slaves = self._seen.bounds, self._seen.slaves
        kept = {
            queue: at
            for queue, at in before.offsets.items()
            if (queue not in bounds and not self._is_gone(queue))
            or (queue in bounds and queue.broker in slaves and bounds[queue].highest < at)
        }
        end = {**position.offsets, **{queue: bounds[queue].highest for queue in bounds}, **kept}
        marks = self._marks(None, {queue: at for queue, at in end.items() if queue not in kept})
        marks |= {queue: mark for queue, mark in before.marks.items() if queue in kept}
        # It is not known yet whether the query is new: `tasks` uses this start only if it is.
        return to_json(Position(end, position.offsets, since_ms=position.since_ms, marks=marks))

    def _is_unsettled(self, position: Position, before: Position) -> bool:
        """Return whether a queue has gone or got shorter since it was seen, so that it is awaited.

        A broker without an answer is only awaited before the first end: a later one keeps its ends.
        """
        bounds = self._seen.bounds
        if any(
            queue.broker not in self._seen.slaves
            and (bounds[queue].highest < at if queue in bounds else self._is_gone(queue))
            for queue, at in before.offsets.items()
        ):
            return True
        answered = self._seen.brokers | {broker for _, broker in self._seen.gone}
        missing = {queue.broker for queue in position.offsets} - answered
        return self._ended is None and bool(missing)

    def _is_gone(self, queue: Queue) -> bool:
        """Return whether the master says that it does not know the topic."""
        place = (queue.topic, queue.broker)
        return place in self._seen.gone and queue.broker not in self._seen.slaves

    def _refresh_if_due(self, position: Position) -> None:
        if self._frozen is not None:
            self._settle(position)
            return
        refresh_s = self.options.offset_refresh_ms / 1000
        if refresh_s:
            refresh_s = max(refresh_s, min(1.0, len(self._seen.bounds) / _QUEUES_A_SECOND))
        if self._refreshed_at is not None:
            age = self.clock() - self._refreshed_at
            if age < refresh_s:
                if self._has_news(position):
                    return
                self.sleep(refresh_s - age)
        self._refresh(position.offsets)

    def _has_news(self, position: Position) -> bool:
        uncompared = self._watch.uncompared
        return any(
            held.highest > position.offsets.get(queue, self._begins.get(queue, held.lowest))
            for queue, held in self._seen.bounds.items()
            if queue not in uncompared
        )

    def _settle(self, position: Position) -> None:
        """Before the first batch of a query that ends, wait for queues that look wrong.

        Brokers that are away stay out, and their queues are named.
        """
        assert self._frozen is not None
        if self._refreshed_at is None:
            return
        self._refresh(position.offsets)
        while self._watch.is_waiting(position, self._seen):
            self.sleep(_PAUSE_S)
            self._refresh(position.offsets)
        for queue, stands in position.offsets.items():
            held, frozen = self._seen.bounds.get(queue), self._frozen.get(queue)
            came_back = frozen is None and queue.broker in self._absent
            if held is not None and (came_back or (frozen is not None and frozen.highest < stands)):
                self._frozen[queue] = held
        absent = [str(queue) for queue in position.offsets if queue.broker in self._seen.away]
        if absent:
            _log.warning("the query ends without queues of absent brokers: %s", "; ".join(absent))
        self._refreshed_at = None

    def _await_queues(self, needed: Offsets, wanted: set[Queue], *, is_replayed: bool) -> None:
        """Wait for the queues of a batch: `awayMs` for an absent broker, `timeoutMs` for others."""
        begun = self.clock()
        if is_replayed or self._missing(needed, wanted, is_replayed=is_replayed):
            self._refresh(needed)
        while missing := self._missing(needed, wanted, is_replayed=is_replayed):
            waited = self.clock() - begun
            behind = [queue for queue in missing if queue.broker in self._seen.slaves]
            away = any(queue.broker in self._seen.away for queue in missing)
            if behind and 0 < self.options.away_ms <= waited * 1000:
                raise BrokerAway(
                    f"{behind[0]}: only a slave answers, and it does not yet have what was planned"
                    f" from its master; waited {waited:.0f} s (awayMs). Start the master"
                )
            if not away and not behind and waited >= self.options.timeout_ms / 1000:
                break
            self.sleep(_PAUSE_S)
            self._refresh(needed)
        for queue in sorted(wanted - self._seen.bounds.keys()):
            self._lost(f"{queue}: no longer exists")

    def _missing(self, needed: Offsets, wanted: set[Queue], *, is_replayed: bool) -> set[Queue]:
        """Return the queues that do not exist, or whose slave lacks needed messages.

        A restarted master shows fewer messages until it has read its log again.
        """
        there, slaves = self._seen.bounds, self._seen.slaves
        return {
            queue
            for queue in wanted
            if queue not in there
            or ((queue.broker in slaves or is_replayed) and there[queue].highest < needed[queue])
        }

    def _refresh(self, needed: Iterable[Queue]) -> None:
        queues = list(needed)
        now = self.clock()
        is_pattern = self.options.topic_pattern is not None
        stale = (
            self._topics_at is None
            or (now - self._topics_at) * 1000 >= self.options.topic_refresh_ms
        )
        if not is_pattern or stale:
            self._topics = clusters.topics_of(self.options, self.cluster)
            self._topics_at = now
        snapshot = self.cluster.snapshot(self._topics, expected=queues, lenient=True)
        self._seen = clusters.chosen(self.options, snapshot)
        self._watch.record_brokers(self._seen, {queue.broker for queue in queues})
        self._refreshed_at = self.clock()

    def _begun(self, position: Position) -> Offsets:
        """Return the start of queues that the position lacks, or that start again after a loss."""
        bounds = self._seen.bounds
        if self._frozen is not None:
            bounds = {queue: held for queue, held in bounds.items() if queue in self._frozen}
        new = {queue: held for queue, held in bounds.items() if queue not in position.offsets}
        begun = self._begins_of(new, position.since_ms)
        begun = {queue: at for queue, at in begun.items() if bounds[queue].highest > at}
        losses = self._watch.losses(position, self._seen)
        self._reported &= losses.keys()
        for queue, what in sorted(losses.items()):
            if queue not in self._reported:
                self._lost(what)
            if queue in self._seen.bounds:
                begun |= self._after_loss(queue, position.marks.get(queue))
            else:
                self._reported.add(queue)
        return begun

    def _begins_of(self, new: dict[Queue, Bounds], since_ms: int | None) -> Offsets:
        unknown = {queue: held for queue, held in new.items() if queue not in self._begins}
        if since_ms is None:
            self._begins.update({queue: held.lowest for queue, held in unknown.items()})
        elif unknown:
            try:
                self._begins.update(self.cluster.offsets_at(unknown, since_ms))
            except NO_ANSWER as error:
                _log.debug("the start of new queues is requested again: %s", error)
        return {
            queue: min(max(self._begins[queue], held.lowest), held.highest)
            for queue, held in new.items()
            if queue in self._begins
        }

    def _after_loss(self, queue: Queue, mark: Mark | None) -> Offsets:
        """Find the first message that was certainly never read: one stored after the mark."""
        try:
            return {queue: self._first_after(self._seen.bounds[queue], queue, mark)}
        except NO_ANSWER:
            # The queue keeps its position until its broker answers.
            return {}

    def _first_after(self, held: Bounds, queue: Queue, mark: Mark | None) -> int:
        if mark is None:
            return held.highest
        return self.cluster.offsets_at({queue: held}, mark.stored_ms + 1)[queue]

    def _ends(self, standing: Mapping[Queue, int], uncompared: set[Queue]) -> Offsets:
        end: Offsets = {}
        for queue, stands in standing.items():
            held = None if queue in uncompared else self._seen.bounds.get(queue)
            if self._frozen is not None:
                held = self._frozen.get(queue) if held is not None else None
            end[queue] = stands if held is None else max(stands, held.highest)
        return end

    def _left(self, standing: Offsets, end: Offsets) -> Offsets:
        """Return the first remaining offset of each queue, from which a limit counts."""
        bounds = self._seen.bounds
        return {
            queue: max(at, min(bounds[queue].lowest, end[queue])) if queue in bounds else at
            for queue, at in standing.items()
        }

    def _marks(self, before: Position | None, end: Offsets) -> dict[Queue, Mark]:
        """Return the message before each end: known from the last batch, or requested now."""
        known = {} if before is None else before.marks
        stood = {} if before is None else before.offsets
        kept = {q: known[q] for q, at in end.items() if q in known and stood.get(q) == at}
        missing = {q: at for q, at in end.items() if q not in kept and q in self._seen.bounds}
        # A queue without a mark is compared from the next batch on.
        return {**kept, **self.cluster.marks(missing)}

    def _lost(self, what: str) -> None:
        report_loss(self.options, what)

    def _too_few(self, waiting: int) -> bool:
        if self._frozen is not None or waiting >= self.options.min_offsets_per_trigger:
            return False
        now = self.clock()
        if self._last_batch_at is None:
            self._last_batch_at = now
        return now - self._last_batch_at < self.options.max_trigger_delay_ms / 1000
