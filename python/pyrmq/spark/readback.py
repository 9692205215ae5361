"""What a sink's topic got since a batch was begun, read back where rows may be there already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyrmq._core import Connections, RangeReader
from pyrmq.errors import TopicNotFound
from pyrmq.spark.cluster import await_brokers
from pyrmq.spark.options import Options
from pyrmq.spark.remote import RemoteCluster
from pyrmq.spark.stamps import PROPERTY

if TYPE_CHECKING:
    from pyrmq.spark.offsets import Bounds, Offsets, Queue
    from pyrmq.spark.sink_options import SinkOptions

__all__ = ["names_in_topic", "topic_ends"]

_SETTLE_S = 1.0
"""A broker puts a message into its queue a moment after it has stored it."""


def topic_ends(options: SinkOptions, topic: str) -> Offsets:
    """Return where a topic's queues end; nothing when the first message will create it.

    Raises:
        BrokerAway: a broker of the topic does not answer.
    """
    return {queue: held.highest for queue, held in _bounds(options, topic)[0].items()}


def names_in_topic(options: SinkOptions, topic: str, since: Offsets, prefix: str) -> set[str]:
    """Return the names of a task's rows that a topic holds.

    Args:
        options: name servers and time-outs.
        topic: the sink's topic.
        since: where to begin in each queue; a queue without one is read whole.
        prefix: the names of the task's rows begin with it.

    Raises:
        BrokerAway: a broker of the topic does not answer.
        DataLossError: messages behind `since` are gone.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from pyrmq._client.arrow import batch

    time.sleep(_SETTLE_S)
    bounds, addresses = _bounds(options, topic)
    ranges = [
        (addresses[q.broker], q.broker, topic, q.queue_id, since.get(q, held.lowest), held.highest)
        for q, held in sorted(bounds.items())
        if since.get(q, held.lowest) < held.highest
    ]
    reader = RangeReader(
        Connections(),
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


def _bounds(options: SinkOptions, topic: str) -> tuple[dict[Queue, Bounds], dict[str, str]]:
    given = {
        "nameServer": options.name_server,
        "topic": topic,
        "timeoutMs": str(options.timeout_ms),
        "readFrom": "master",
    }
    asked = Options.parse(given, batch=True)
    cluster = RemoteCluster(asked)
    try:
        bounds = await_brokers(asked, cluster, all_of_route=True).bounds
    except TopicNotFound:
        return {}, {}
    else:
        return bounds, cluster.addresses()
    finally:
        cluster.close()
