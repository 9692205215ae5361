"""Encodes planning's requests to brokers and decodes their answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

from pyrmq import _core
from pyrmq._tables.offsets import Bounds, Mark
from pyrmq.errors import (
    BrokerBusy,
    ConnectionLost,
    NameServerUnreachable,
    ProtocolError,
    RequestTimeout,
    ServiceUnavailable,
)

if TYPE_CHECKING:
    from pyrmq._tables.offsets import Queue

__all__ = [
    "TRANSIENT",
    "Fields",
    "group_fields",
    "pull_fields",
    "read_attributes",
    "read_mark",
    "read_size",
    "read_stats",
]

Fields: TypeAlias = dict[str, str | int | bool | None]
"""The header fields of a request."""
TRANSIENT = (
    ConnectionLost,
    RequestTimeout,
    NameServerUnreachable,
    BrokerBusy,
    ServiceUnavailable,
)
"""Errors of a request that may succeed later."""
_SUBSCRIBED = 4
"""The flag of a pull that carries its subscription."""


def read_stats(body: bytes | None, broker: str) -> dict[str, dict[int, Bounds]]:
    """Read statistics by topic; their names are queues: `parse_json` gives each as its pairs."""
    stats = _core.parse_json(body or b"{}")
    if not isinstance(stats, dict):
        raise ProtocolError(f"{broker}: the topic statistics are not a JSON object: {body!r:.200}")
    held: dict[str, dict[int, Bounds]] = {}
    for name, offsets in (stats.get("offsetTable") or {}).items():
        queue = dict(name)
        if queue.get("brokerName") == broker:
            held.setdefault(queue["topic"], {})[int(queue["queueId"])] = Bounds(
                max(0, int(offsets["minOffset"])), max(0, int(offsets["maxOffset"]))
            )
    return held


def group_fields(group: str, queue: Queue) -> Fields:
    """Write the header of a request about a group's offset."""
    return {"consumerGroup": group, "topic": queue.topic, "queueId": queue.queue_id}


def pull_fields(group: str, queue: Queue, offset: int) -> Fields:
    """Write the header of a pull of one message."""
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "maxMsgNums": 1,
        "sysFlag": _SUBSCRIBED,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


# Queue offset, log position, flags, time of birth; then the hosts, and between them the store time.
_HEAD = struct.Struct(">20xqqi8x")
_TIME = struct.Struct(">q")
_BORN_V6 = 1 << 4


def read_mark(record: bytes, wanted: int) -> Mark | None:
    """Read the front of a message; None if it is after the requested one."""
    if len(record) < _HEAD.size + 20 + _TIME.size:
        return None
    offset, log_position, flags = _HEAD.unpack_from(record)
    if offset > wanted:
        return None
    at = _HEAD.size + (20 if flags & _BORN_V6 else 8)
    return Mark(max(0, log_position), max(0, _TIME.unpack_from(record, at)[0]))


def read_size(record: bytes) -> int:
    """Read how many bytes a stored message takes."""
    return int.from_bytes(record[:4], "big")


def read_attributes(body: bytes | None) -> dict[str, str]:
    """Read the attributes of a topic's configuration, which brokers since 5.0 keep."""
    found = _core.parse_json(body or b"{}")
    attributes = found.get("attributes") if isinstance(found, dict) else None
    return {} if attributes is None else {str(name): str(text) for name, text in attributes.items()}
