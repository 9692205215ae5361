"""Reads back what a sink's topic got since a batch was begun, if rows may be in it already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

from pyrmq._core import Connections, RangeReader
from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.errors import BrokerAway
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.cluster import await_brokers
from pyrmq.errors import DataLossError, TopicNotFound
from pyrmq.spark.writing.stamps import PROPERTY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq._tables.offsets import Bounds, Offsets, Queue
    from pyrmq._tables.options.sink_options import SinkOptions

_Range: TypeAlias = tuple[str, str, str, int, int, int]

__all__ = ["names_in_topic", "topic_ends"]

_PAUSE_S = 0.2
_SETTLE_S = 1.0
"""How long a broker may take until received messages appear in its queues."""


def topic_ends(options: SinkOptions, topic: str, *, is_known: bool = False) -> Offsets:
    """Return where a topic's queues end.

    Args:
        options: name servers and time-outs.
        topic: the sink's topic.
        is_known: whether it has been written to. A name server that does not know it was then
            restarted, and the brokers will register.

    Raises:
        BrokerAway: a broker of the topic does not answer.
        TopicNotFound: no name server knows the topic.
    """
    deadline = time.monotonic() + (options.timeout_ms / 1000 if is_known else 0)
    while True:
        try:
            return {queue: held.highest for queue, held in _bounds(options, topic)[0].items()}
        except TopicNotFound as error:
            if time.monotonic() < deadline:
                time.sleep(_PAUSE_S)
                continue
            raise TopicNotFound(
                f"topic {topic}: does not exist on {options.name_server}. Create it (`pyrmq topic"
                f" create {topic}`), or check the spelling: delivery=exactly-once must know"
                " the topic's brokers before it sends",
                topic=topic,
            ) from error


def names_in_topic(
    options: SinkOptions, topic: str, since: Offsets, brokers: Sequence[str], prefix: str
) -> set[str]:
    """Return the names of a task's rows that a topic has.

    The task's earlier attempt has ended, but a broker may have been hanging or down: messages that
    it received can appear late. So this waits for the topic's brokers, and reads on until a pass
    finds none of the task's rows.

    Args:
        options: name servers and time-outs.
        topic: the sink's topic.
        since: where to start in each queue; a queue without an offset is read from its start.
        brokers: the brokers that the topic had when the batch began.
        prefix: the beginning of the names of the task's rows.

    Raises:
        BrokerAway: one of `brokers`, or another broker of the topic, does not answer or is in no
            route.
        DataLossError: messages after `since` are gone, or a queue stays shorter than `since`.
    """
    _bounds(options, topic, brokers)
    read_to = dict(since)
    names: set[str] = set()
    while True:
        time.sleep(_SETTLE_S)
        bounds, addresses = _rebuilt(options, topic, read_to, brokers)
        ranges = [
            (addresses[q.broker], q.broker, topic, q.queue_id, first, held.highest)
            for q, held in sorted(bounds.items())
            if (first := read_to.get(q, held.lowest)) < held.highest
        ]
        found = _names_in(options, ranges, prefix)
        if not found:
            return names
        names |= found
        read_to |= {queue: held.highest for queue, held in bounds.items()}


def _rebuilt(
    options: SinkOptions, topic: str, needed: Offsets, brokers: Sequence[str]
) -> tuple[dict[Queue, Bounds], dict[str, str]]:
    """Read the ends of a topic's queues once they have at least reached the earlier ones.

    A killed broker rebuilds its queues from its log and shows fewer messages meanwhile: rows that
    it has would seem to be missing.
    """
    deadline = time.monotonic() + options.timeout_ms / 1000
    wanted = sorted({*brokers, *(queue.broker for queue in needed)})
    while True:
        bounds, addresses = _bounds(options, topic, wanted)
        short = [q for q, at in sorted(needed.items()) if q not in bounds or bounds[q].highest < at]
        if not short:
            return bounds, addresses
        if time.monotonic() >= deadline:
            queue = short[0]
            held = bounds.get(queue)
            raise DataLossError(
                f"{queue}: ended at {needed[queue]} when the batch began, and"
                f" {'is gone' if held is None else f'ends at {held.highest}'} now; waited"
                f" {options.timeout_ms / 1000:g} s (timeoutMs). Its broker still reads its log, or"
                " has lost messages: which rows are in the topic is not known"
            )
        time.sleep(_PAUSE_S)


def _names_in(options: SinkOptions, ranges: list[_Range], prefix: str) -> set[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from pyrmq._client.arrow import batch

    reader = RangeReader(
        Connections(**options.security.native()),
        ranges,
        ["properties"],
        group=options.group,
        tags="*",
        max_rows=10_000,
        max_bytes=8 << 20,
        pulls_in_flight=8,
        timeout_ms=options.timeout_ms,
        skip_lost=False,
        on_bad="null",
    )
    schema = pa.schema([("properties", pa.map_(pa.string(), pa.string()))])
    names: set[str] = set()
    while (block := reader.next_block()) is not None:
        found = pc.map_lookup(batch(block, schema).column(0), pa.scalar(PROPERTY), "first")
        ours = pc.starts_with(found, f"{prefix}.")
        names.update(found.filter(ours).to_pylist())
    return names


def _bounds(
    options: SinkOptions, topic: str, brokers: Sequence[str] = ()
) -> tuple[dict[Queue, Bounds], dict[str, str]]:
    given = {
        "nameServer": options.name_server,
        "topic": topic,
        "timeoutMs": str(options.timeout_ms),
        "readFrom": "master",
        "brokers": ",".join(brokers),
        **options.security.options(),
    }
    parsed = Options.parse(given, batch=True)
    cluster = RemoteCluster(parsed)
    try:
        bounds = await_brokers(parsed, cluster, all_of_route=True).bounds
    except TopicNotFound as error:
        if brokers:
            # A restarted name server, or one whose brokers are all down, knows no route.
            raise BrokerAway(
                f"topic {topic}: its brokers {', '.join(brokers)} are in no route; waited"
                f" {options.timeout_ms / 1000:g} s (timeoutMs)"
            ) from error
        raise
    else:
        return bounds, cluster.addresses()
    finally:
        cluster.close()
