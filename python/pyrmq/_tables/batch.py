"""Plans a read that ends: start, end, and tasks. Without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.errors import OffsetError
from pyrmq._tables.planning import cluster as clusters
from pyrmq._tables.planning.plan import rows, take
from pyrmq._tables.planning.tasks import tasks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq._tables.offsets import Bounds, Offsets, Queue
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.plan import Range

__all__ = ["planned"]


def planned(options: Options) -> tuple[list[list[Range]], dict[str, str]]:
    """Return the tasks of a read, each a list of ranges, and the brokers' addresses by name.

    Raises:
        OffsetError: a queue's start is after its end, or its end after its last message.
        DataLossError: a part has expired.
        BrokerAway: a broker does not answer.
    """
    cluster = RemoteCluster(options)
    try:
        bounds = clusters.await_brokers(options, cluster, all_of_route=True).bounds
        start = clusters.starting(options, cluster, bounds)
        end = clusters.ending(options, cluster, bounds)
        end = _held(options, end, bounds)
        tasks = tasks_of(options, start, end, bounds, cluster)
        return _limited(options, tasks), cluster.addresses()
    finally:
        cluster.close()


def _held(options: Options, end: Offsets, bounds: Mapping[Queue, Bounds]) -> Offsets:
    held = {}
    for queue, offset in end.items():
        highest = bounds[queue].highest
        if offset > highest and options.fail_on_data_loss:
            raise OffsetError(
                f"{queue}: endingOffsets has {offset}, the queue has {bounds[queue].lowest}"
                f" to {highest}"
            )
        held[queue] = min(offset, highest)
    return held


def _limited(options: Options, tasks: list[list[Range]]) -> list[list[Range]]:
    flat = [part for task in tasks for part in task]
    if not options.limit or rows(flat) <= options.limit:
        return tasks
    if options.tags != "*" or options.sql is not None or any(part.compacted for part in flat):
        # How many messages a range yields is known only when it is read: one task counts.
        return [flat]
    return [take(flat, options.limit)]
