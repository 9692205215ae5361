"""Runs in Spark's Python workers: record ranges to Arrow batches, without a Python object per row.

A worker serves many tasks, so the connections are in the module, and long-lived objects are hidden
from the garbage collector once: Spark collects after every task, which costs more than a small
task.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from pyrmq._core import Connections, RangeReader
from pyrmq._tables.brokers.routes import Routes
from pyrmq._tables.errors import BrokerAway
from pyrmq._tables.schema import known
from pyrmq.admin import Admin
from pyrmq.errors import ConnectionLost, NameServerUnreachable, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from pyrmq._core import Block
    from pyrmq._tables.options.security import GivenSecurity, Security
    from pyrmq._tables.options.topic_options import Options
    from pyrmq._tables.planning.plan import Range

__all__ = ["Part", "batches", "freeze_once"]

_REROUTE_MS = 2000
"""Time without an answer after which a broker's address is looked up again, in ms."""
_NAMES_S = 2.0
_log = logging.getLogger("pyrmq.spark")
_frozen = False
_connections: dict[tuple[int, Security | GivenSecurity], Connections] = {}


class Part(NamedTuple):
    """A range and where its broker is.

    Example:
        >>> from pyrmq._tables.offsets import Queue
        >>> from pyrmq._tables.planning.plan import Range
        >>> Part("127.0.0.1:10911", Range(Queue("orders", "broker-a", 0), 5, 9)).range.rows
        4
    """

    address: str
    range: Range


def batches(
    options: Options,
    schema: pa.Schema,
    parts: Sequence[Part],
    *,
    away_ms: int,
    limit: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Read ranges and yield them as Arrow batches of the schema's columns.

    Args:
        options: batch sizes, tags, time-outs.
        schema: the columns, in order, by their own names or in another case.
        parts: what to read, in this order.
        away_ms: how long a broker may be away; 0: no limit.
        limit: rows after which to stop; 0: all.

    Raises:
        BrokerAway: a broker did not answer for longer than that.
        BrokerError: a broker refused.
        DataLossError: a range has expired in part.
        ProtocolError: a message cannot be read, and option onBadMessage is fail.
    """
    if not parts:
        return
    wanted, convert = _conversion(options, schema)
    reader = _open(options, [known(name) for name in wanted.names], parts)
    left = limit or None
    while (block := _next_block(reader, options, parts, away_ms)) is not None:
        for lost in reader.take_lost():
            _log.warning("messages are gone and left out: %s", lost)
        for bad in reader.take_unreadable():
            _log.warning("a message cannot be read (onBadMessage=%s): %s", options.on_bad, bad)
        rows = convert(block)
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        yield rows
        if left == 0:
            return


def _conversion(
    options: Options, schema: pa.Schema
) -> tuple[pa.Schema, Callable[[Block], pa.RecordBatch]]:
    """Return the columns to read, and how a block of them becomes a batch of the schema."""
    from pyrmq._client.arrow import batch

    if options.layout == "kafka":
        from pyrmq._tables import kafka

        names = [known(name, "kafka") for name in schema.names]
        wanted = kafka.sources(names)

        def convert(block: Block) -> pa.RecordBatch:
            return kafka.from_messages(_plain_topics(batch(block, wanted), options), names, schema)

        return wanted, convert
    return schema, lambda block: _plain_topics(batch(block, schema), options)


def _plain_topics(rows: pa.RecordBatch, options: Options) -> pa.RecordBatch:
    """Show topics without their namespace."""
    names = [name.lower() for name in rows.schema.names]
    if not options.namespace or "topic" not in names:
        return rows
    import pyarrow.compute as pc

    at = names.index("topic")
    inside = f"^(%RETRY%|%DLQ%)?{re.escape(options.namespace)}%"
    plain = pc.replace_substring_regex(rows.column(at), inside, r"\1")
    return rows.set_column(at, rows.schema.field(at), plain)


def _next_block(
    reader: RangeReader, options: Options, parts: Sequence[Part], away_ms: int
) -> Block | None:
    """Return the next rows; a broker that does not answer is tried at its newest address."""
    since = time.monotonic()
    while True:
        try:
            return reader.next_block()
        except ConnectionLost as error:
            waited = time.monotonic() - since
            if 0 < away_ms <= waited * 1000:
                raise BrokerAway(
                    f"{error}; waited {waited:.0f} s on executor {socket.gethostname()}. Nothing is"
                    " lost: start the broker and read again. If this host cannot reach that"
                    " address, set brokerIP1 of the broker to one that it can (`pyrmq spark doctor`"
                    " tries every address from every executor)"
                ) from error
            reader.resume(_addresses_now(options, parts))
        except ProtocolError as error:
            raise ProtocolError(
                f"{error}. Option onBadMessage=null or skip continues without it"
            ) from error


def _addresses_now(options: Options, parts: Sequence[Part]) -> dict[str, str]:
    security = options.security.arguments()
    with Admin(name_server=options.name_server, timeout=_NAMES_S, **security) as admin:
        routes = Routes(options, admin)
        try:
            for topic in {part.range.queue.topic for part in parts}:
                routes.of(topic)
        except NameServerUnreachable:
            # The broker may come back at its old address.
            _log.debug("no name server answers, the addresses stay unchanged")
        return routes.addresses()


def _open(options: Options, wanted: Sequence[str], parts: Sequence[Part]) -> RangeReader:
    return RangeReader(
        _connections_here(options.security),
        [
            (
                part.address,
                part.range.queue.broker,
                part.range.queue.topic,
                part.range.queue.queue_id,
                part.range.start,
                part.range.end,
            )
            for part in parts
        ],
        list(wanted),
        group=options.group,
        tags=options.tags,
        sql=options.sql,
        compacted={part.range.queue.topic for part in parts if part.range.compacted},
        max_rows=options.max_batch_rows,
        max_bytes=options.max_batch_bytes,
        pulls_in_flight=options.pulls_in_flight,
        timeout_ms=options.timeout_ms,
        skip_lost=not options.fail_on_data_loss,
        on_bad=options.on_bad,
        unreachable_ms=min(_REROUTE_MS, options.timeout_ms),
    )


def _connections_here(security: Security | GivenSecurity) -> Connections:
    """Return this process's connections: a forked worker cannot use its parent's."""
    key = (os.getpid(), security)
    if key not in _connections:
        _connections.clear()
        _connections[key] = Connections(**security.native())
    return _connections[key]


def freeze_once() -> None:
    """Hide objects that live as long as a Spark worker from the garbage collector."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
