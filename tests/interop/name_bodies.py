"""Bodies of registrations in plain Python: both forms, and that of old brokers."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

V3_0_11, V5_0_0 = 37, 413


class Version(NamedTuple):
    """A data version."""

    state: int
    counter: int

    def tree(self) -> dict[str, int]:
        """It as JSON has it."""
        return {"counter": self.counter, "stateVersion": self.state, "timestamp": 1_700_000_000_000}


class TopicConfig(NamedTuple):
    """A topic's settings."""

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int

    def tree(self) -> dict[str, object]:
        """It as JSON has it."""
        return {
            "order": False,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.topic,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    def line(self) -> str:
        """It as a compressed registration has it."""
        return f"{self.topic} {self.read_queues} {self.write_queues} {self.perm} SINGLE_TAG {{}}"


def body_of(
    topics: Sequence[TopicConfig],
    data_version: Version,
    *,
    version: int,
    compressed: bool,
    filters: Sequence[str] = (),
    mapped_by: str | None = None,
) -> tuple[bytes, int]:
    """The body of a registration and its checksum.

    Args:
        topics: the broker's topics.
        data_version: their version.
        version: ordinal of the broker's software.
        compressed: the compressed form.
        filters: filter servers.
        mapped_by: the broker that maps its first topic as a static one.
    """
    mappings = {}
    if mapped_by is not None and topics:
        mappings = {topics[0].topic: _mapping(topics[0].topic, mapped_by)}
    if compressed:
        body = _compressed(topics, data_version, filters, mappings, version)
    else:
        wrapper: dict[str, object] = {
            "dataVersion": data_version.tree(),
            "topicConfigTable": {config.topic: config.tree() for config in topics},
        }
        if version >= V5_0_0:
            wrapper["mappingDataVersion"] = Version(0, 0).tree()
            wrapper["topicQueueMappingDetailMap"] = {}
            wrapper["topicQueueMappingInfoMap"] = mappings
        whole = {"filterServerList": list(filters), "topicConfigSerializeWrapper": wrapper}
        body = json.dumps(whole if version >= V3_0_11 else wrapper).encode()
    return body, zlib.crc32(body) & 0x7FFF_FFFF


def _mapping(topic: str, broker: str) -> dict[str, object]:
    return {
        "bname": broker,
        "currIdMap": {"0": 0},
        "dirty": False,
        "epoch": 7,
        "scope": "__global__",
        "topic": topic,
        "totalQueues": 1,
    }


def _compressed(
    topics: Iterable[TopicConfig],
    data_version: Version,
    filters: Sequence[str],
    mappings: dict[str, dict[str, object]],
    version: int,
) -> bytes:
    lines = [config.line().encode() for config in topics]
    parts = [_block(json.dumps(data_version.tree()).encode()), struct.pack(">i", len(lines))]
    parts += map(_block, lines)
    parts.append(_block(json.dumps(list(filters)).encode()))
    if version >= V5_0_0:
        parts.append(struct.pack(">i", len(mappings)))
        parts += [_block(json.dumps(info).encode()) for info in mappings.values()]
    return zlib.compress(b"".join(parts), 9)


def _block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
