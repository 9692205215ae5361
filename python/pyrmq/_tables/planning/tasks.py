"""Makes tasks of two positions: the range between, the part that still exists, and the cuts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyrmq._tables.errors import DataLossError
from pyrmq._tables.planning.plan import Range, pack, ranges_between, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq._tables.offsets import Bounds, Offsets, Queue
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.cluster import Cluster

__all__ = ["available", "report_loss", "tasks_of"]

_log = logging.getLogger("pyrmq.spark")


def tasks_of(
    options: Options,
    start: Offsets,
    end: Offsets,
    bounds: Mapping[Queue, Bounds],
    cluster: Cluster,
) -> list[list[Range]]:
    """Cut the range between two positions into tasks, as the options say.

    Raises:
        DataLossError: a part has expired and the options say that this is an error.
    """
    ranges = available(options, ranges_between(start, end, bounds), bounds)
    compacted = cluster.compacted(sorted({part.queue.topic for part in ranges}))
    ranges = [part._replace(compacted=part.queue.topic in compacted) for part in ranges]
    cut = {
        "min_partitions": options.min_partitions,
        "max_records": options.max_records_per_partition,
    }
    return pack(split(ranges, **cut), **cut)


def available(options: Options, ranges: list[Range], bounds: Mapping[Queue, Bounds]) -> list[Range]:
    """Compare ranges with what the queues still have; the expired part is an error or left out.

    Raises:
        DataLossError: a part has expired and the options say that this is an error.
    """
    left = []
    for part in ranges:
        held = bounds.get(part.queue)
        if held is not None and part.start < held.lowest:
            report_loss(
                options,
                f"{part.queue}: expected offsets {part.start} to {part.end},"
                f" it has {held.lowest} to {held.highest}",
            )
            part = part._replace(start=min(held.lowest, part.end))
        if part.rows:
            left.append(part)
    return left


def report_loss(options: Options, what: str) -> None:
    """Raise or, if the options allow a loss, log what is gone.

    Raises:
        DataLossError: the options say that a loss is an error.
    """
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Messages that should have been read are gone; with failOnDataLoss=false the"
            " query goes on with what is left"
        )
    _log.warning("messages are gone and left out: %s", what)
