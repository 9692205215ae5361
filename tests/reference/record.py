"""The message record: the same bytes in the commit log, in pull answers and in queries.

::

    4 total size    4 magic          4 body CRC     4 queue id     4 flag
    8 queue offset  8 log offset     4 sys flag     8 born time    8|20 born host
    8 store time    8|20 store host  4 reconsumes   8 prepared transaction offset
    4 + n body      1 + n (v1) or 2 + n (v2) topic  2 + n properties
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.reference.ids import Address

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

COMPRESSED = 0x1
BORN_V6 = 0x10
STORE_V6 = 0x20

LOCAL = IPv4Address("127.0.0.1")


class RecordError(ValueError):
    """The bytes are not a message record."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One stored message, its body as stored (maybe compressed)."""

    topic: str
    body: bytes
    properties: str = ""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Address = LOCAL
    born_port: int = 0
    store_timestamp: int = 0
    store_host: Address = LOCAL
    store_port: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = MAGIC_V1
    body_crc: int | None = None
    """None: computed over the body."""


def crc(body: bytes) -> int:
    """Return the CRC-32 of a body without its sign bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode(record: Record) -> bytes:
    """Write one record; the host lengths follow the addresses, the sys flag is unchanged."""
    topic, properties = record.topic.encode(), record.properties.encode()
    checksum = crc(record.body) if record.body_crc is None else record.body_crc
    rest = b"".join(
        (
            struct.pack(">IIii", record.magic, checksum, record.queue_id, record.flag),
            struct.pack(">qqi", record.queue_offset, record.physical_offset, record.sys_flag),
            struct.pack(">q", record.born_timestamp) + record.born_host.packed,
            struct.pack(">iq", record.born_port, record.store_timestamp) + record.store_host.packed,
            struct.pack(
                ">iiq",
                record.store_port,
                record.reconsume_times,
                record.prepared_transaction_offset,
            ),
            struct.pack(">i", len(record.body)) + record.body,
            struct.pack(">B" if record.magic == MAGIC_V1 else ">H", len(topic)) + topic,
            struct.pack(">H", len(properties)) + properties,
        )
    )
    return struct.pack(">I", 4 + len(rest)) + rest


def decode(data: bytes, at: int = 0) -> tuple[Record, int]:
    """Read the record at ``at``; return it and the position of the next.

    Raises:
        RecordError: wrong magic, wrong size or cut off.
    """
    reader = _Reader(data, at)
    size = reader.number(">I")
    magic = reader.number(">I")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"magic of a message expected at byte {at}: {magic:#x}")
    checksum = reader.number(">I")
    queue_id, flag = reader.number(">i"), reader.number(">i")
    queue_offset, physical_offset = reader.number(">q"), reader.number(">q")
    sys_flag = reader.number(">i")
    born_timestamp = reader.number(">q")
    born_host = ip_address(reader.take(16 if sys_flag & BORN_V6 else 4))
    born_port = reader.number(">i")
    store_timestamp = reader.number(">q")
    store_host = ip_address(reader.take(16 if sys_flag & STORE_V6 else 4))
    store_port = reader.number(">i")
    reconsume_times, prepared = reader.number(">i"), reader.number(">q")
    body = reader.take(reader.number(">i"))
    topic = reader.take(reader.number(">B" if magic == MAGIC_V1 else ">H")).decode()
    properties = reader.take(reader.number(">H")).decode()
    if reader.at - at != size:
        raise RecordError(f"record at byte {at} says {size} bytes but has {reader.at - at}")
    record = Record(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        born_port=born_port,
        store_timestamp=store_timestamp,
        store_host=store_host,
        store_port=store_port,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        magic=magic,
        body_crc=checksum,
    )
    return record, reader.at


def decode_all(data: bytes) -> list[Record]:
    """Read records that are stored back to back, as in the body of a pull answer."""
    records = []
    at = 0
    while at < len(data):
        record, at = decode(data, at)
        records.append(record)
    return records


def scan_segment(data: bytes) -> list[Record]:
    """Read a commit log file up to the blank record or the first bytes that are no record."""
    records = []
    at = 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">II", data, at)
        if size == 0 or magic not in (MAGIC_V1, MAGIC_V2):
            break
        record, at = decode(data, at)
        records.append(record)
    return records


@dataclass(frozen=True)
class BatchItem:
    """One message inside the body of a batch send."""

    body: bytes
    properties: str = ""
    flag: int = 0


def encode_batch(items: list[BatchItem]) -> bytes:
    """Write the body of a batch: size, magic 0, CRC 0, flag, body and properties of each item."""
    out = b""
    for item in items:
        properties = item.properties.encode()
        rest = struct.pack(">iiii", 0, 0, item.flag, len(item.body)) + item.body
        rest += struct.pack(">h", len(properties)) + properties
        out += struct.pack(">i", 4 + len(rest)) + rest
    return out


def decode_batch(data: bytes) -> list[BatchItem]:
    """Read the body of a batch send."""
    items = []
    reader = _Reader(data, 0)
    while reader.at < len(data):
        start, size = reader.at, reader.number(">i")
        reader.take(8)
        flag = reader.number(">i")
        body = reader.take(reader.number(">i"))
        items.append(BatchItem(body, reader.take(reader.number(">h")).decode(), flag))
        if reader.at - start != size:
            raise RecordError(
                f"batch item at byte {start} says {size} bytes but has {reader.at - start}"
            )
    return items


class _Reader:
    """Reads numbers and bytes one after the other, never past the end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self._data):
            raise RecordError(f"{size} bytes wanted at {self.at}, the data has {len(self._data)}")
        self.at += size
        return self._data[self.at - size : self.at]

    def number(self, form: str) -> int:
        (value,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(value)
