"""A stream's way through the queues: which offsets each micro-batch takes. Neither Spark nor I/O.

Spark drives it from one long-lived process on the driver: `initial` once for a new query, `latest`
for every batch (and every 10 ms while idle), `tasks` to plan one. What may surprise:

* Spark compares offsets as text, and equal text means "nothing new": then the given start is
  returned as it is.
* The end of a query's first batch records where it began (offsets.py says why).
* A queue that seems to end before where the stream stands is given ``timeoutMs`` before it counts
  as lost: a broker that was killed rebuilds its queues from the log and shows less meanwhile.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq.spark import cluster as clusters
from pyrmq.spark.errors import DataLossError
from pyrmq.spark.offsets import Bounds, Offsets, Queue, parse_version, to_json
from pyrmq.spark.plan import Range, limit_rows, pack, ranges_between, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyrmq.spark.cluster import Cluster
    from pyrmq.spark.options import Options

__all__ = ["Progress", "available", "tasks_of"]

_log = logging.getLogger("pyrmq.spark")
_PAUSE_S = 0.2


@dataclass
class Progress:
    """The offsets of one streaming query.

    Args:
        options: the stream's options.
        cluster: whom to ask for queues and their bounds.
        clock: seconds, monotonic.
        sleep: waits seconds.
    """

    options: Options
    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _initial: Offsets | None = None
    _bounds: dict[Queue, Bounds] = field(default_factory=dict)
    _asked_at: float | None = None
    _frozen: dict[Queue, Bounds] | None = None
    _missing_since: dict[Queue, float] = field(default_factory=dict)
    _last_batch_at: float | None = None
    _planned: Offsets | None = None

    def initial(self) -> dict[str, Any]:
        """Return where a new query begins; the same answer however often Spark asks."""
        return to_json(self._beginning())

    def _beginning(self) -> Offsets:
        if self._initial is None:
            bounds = clusters.bounds_of(self.options, self.cluster)
            self._initial = clusters.starting(self.options, self.cluster, bounds)
        return self._initial

    def latest(
        self, start: Mapping[str, Any] | None, *, limit: int, wait_for_more: bool = True
    ) -> dict[str, Any]:
        """Return the end of the next batch, or `start` itself when there is nothing to do.

        Args:
            start: where the stream stands; None from a Spark that does not say (4.1), which gets
                everything.
            limit: rows that the batch may have, 0 for any number.
            wait_for_more: honour ``minOffsetsPerTrigger``.

        Raises:
            DataLossError: unread messages are gone and the options say that this is an error.
        """
        if start is None:
            return self._latest_untold()
        position = parse_version(start)
        begin = position.offsets
        first = position.start is None and begin == self._initial
        given = dict(start)
        unchanged = to_json(begin, start=begin) if first else given
        bounds = self._ask(begin)
        standing = {**begin, **{q: b.lowest for q, b in bounds.items() if q not in begin}}
        end = self._ends(begin, bounds)
        waiting = sum(max(0, end[queue] - standing[queue]) for queue in end)
        if waiting == 0 and end == begin:
            return unchanged
        if wait_for_more and self._too_few(waiting):
            return unchanged
        self._last_batch_at = self.clock()
        end = limit_rows(standing, end, limit)
        return to_json(end, start=begin if first else None)

    def report(self) -> dict[str, Any] | None:
        """Return the true ends of all queues, whatever the limits; None while unknown."""
        if not self._bounds:
            return None
        return to_json({queue: bounds.highest for queue, bounds in self._bounds.items()})

    def freeze(self) -> None:
        """Take what is there now as the end of the query (Trigger.AvailableNow)."""
        self._refresh()
        self._frozen = dict(self._bounds)

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[Range]]:
        """Cut a batch into tasks.

        Raises:
            DataLossError: a part has expired and the options say that this is an error.
        """
        if start == end:
            return []
        upper = parse_version(end)
        given = parse_version(start)
        # A recorded start is that of a query's first batch; Spark has asked where to begin it.
        is_first = given.start is None and given.offsets == self._initial
        lower = upper.start if is_first and upper.start is not None else given.offsets
        self._planned = upper.offsets
        self._await_queues(queue for queue, end in upper.offsets.items() if end != lower.get(queue))
        there = {queue: at for queue, at in upper.offsets.items() if queue in self._bounds}
        for queue, at in there.items():
            if at < lower.get(queue, 0):
                held = self._bounds[queue]
                stood = f"{queue}: stood at {lower[queue]}"
                self._lost(f"{stood}, now holds {held.lowest} to {held.highest}")
        return tasks_of(self.options, lower, there, self._bounds)

    def _latest_untold(self) -> dict[str, Any]:
        """Return the end of all queues, for a Spark that does not tell where the stream stands.

        No limit holds there: after a restart such a Spark asks for an end before it tells any
        start, and for Trigger.AvailableNow it asks only once.
        """
        begin = self._planned if self._planned is not None else self._beginning()
        bounds = self._ask(begin)
        end = {**{queue: at.highest for queue, at in bounds.items()}, **self._ends(begin, bounds)}
        # Whether the query is new is not known yet: `tasks` takes this start only if it is.
        return to_json(end, start=begin if self._planned is None else None)

    def _ask(self, begin: Offsets) -> dict[Queue, Bounds]:
        if self._frozen is not None:
            return self._frozen
        refresh_s = self.options.offset_refresh_ms / 1000
        if self._asked_at is not None:
            age = self.clock() - self._asked_at
            if age < refresh_s:
                if self._ends(begin, self._bounds) != begin:
                    return self._bounds
                self.sleep(refresh_s - age)
        self._refresh()
        return self._bounds

    def _await_queues(self, wanted: Iterable[Queue]) -> None:
        """Wait for queues that a batch reads: right after a start their broker may be away."""
        queues = set(wanted)
        deadline = self.clock() + self.options.timeout_ms / 1000
        if not queues <= self._bounds.keys():
            self._refresh()
        while not queues <= self._bounds.keys() and self.clock() < deadline:
            self.sleep(_PAUSE_S)
            self._refresh()
        for queue in sorted(queues - self._bounds.keys()):
            self._lost(f"{queue}: does not exist any more")

    def _refresh(self) -> None:
        topics = clusters.topics_of(self.options, self.cluster)
        self._bounds = self.cluster.bounds(topics, missing_ok=True)
        self._asked_at = self.clock()

    def _ends(self, begin: Offsets, bounds: Mapping[Queue, Bounds]) -> Offsets:
        end: Offsets = {}
        for queue, stands in begin.items():
            held = bounds.get(queue)
            if held is not None and held.highest >= stands:
                self._missing_since.pop(queue, None)
                end[queue] = held.highest
            elif self._frozen is not None or not self._is_lost(queue):
                end[queue] = stands
            elif held is not None:
                self._lost(f"{queue}: stood at {stands}, now holds {held.lowest} to {held.highest}")
                end[queue] = held.highest
            else:
                self._lost(f"{queue}: stood at {stands}, now does not exist any more")
        new = {q: b for q, b in bounds.items() if q not in begin and b.highest > b.lowest}
        return {**end, **{queue: held.highest for queue, held in new.items()}}

    def _is_lost(self, queue: Queue) -> bool:
        since = self._missing_since.setdefault(queue, self.clock())
        return self.clock() - since >= self.options.timeout_ms / 1000

    def _lost(self, what: str) -> None:
        _report_loss(self.options, what)

    def _too_few(self, waiting: int) -> bool:
        if self._frozen is not None or waiting >= self.options.min_offsets_per_trigger:
            return False
        now = self.clock()
        if self._last_batch_at is None:
            self._last_batch_at = now
        return now - self._last_batch_at < self.options.max_trigger_delay_ms / 1000


def tasks_of(
    options: Options, start: Offsets, end: Offsets, bounds: Mapping[Queue, Bounds]
) -> list[list[Range]]:
    """Cut what lies between two positions into tasks, as the options want them.

    Raises:
        DataLossError: a part has expired and the options say that this is an error.
    """
    lower = dict(start)
    for queue, upper in end.items():
        if upper < lower.get(queue, 0) and not options.fail_on_data_loss and queue in bounds:
            lower[queue] = min(bounds[queue].lowest, upper)
    ranges = available(options, ranges_between(lower, end, bounds), bounds)
    cut = {
        "min_partitions": options.min_partitions,
        "max_records": options.max_records_per_partition,
    }
    return pack(split(ranges, **cut), **cut)


def available(options: Options, ranges: list[Range], bounds: Mapping[Queue, Bounds]) -> list[Range]:
    """Hold ranges against what the queues still have; the expired part is an error or left out.

    Raises:
        DataLossError: a part has expired and the options say that this is an error.
    """
    left = []
    for part in ranges:
        held = bounds.get(part.queue)
        if held is not None and part.start < held.lowest:
            _report_loss(
                options,
                f"{part.queue}: offsets {part.start} to {part.end} were wanted,"
                f" it holds {held.lowest} to {held.highest}",
            )
            part = part._replace(start=min(held.lowest, part.end))
        if part.rows:
            left.append(part)
    return left


def _report_loss(options: Options, what: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Messages that should have been read are gone; with failOnDataLoss=false the"
            " query goes on with what is left"
        )
    _log.warning("messages are gone and left out: %s", what)
