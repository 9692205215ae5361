"""The two forms of message id, both upper-case hexadecimal.

::

    offset id   store host IP (4 or 16), port int32, commit log offset int64       32 or 56 digits
    unique id   IP (4 or 16), process id int16, class loader hash int32,
                milliseconds since the start of the month int32, counter int16    32 or 56 digits
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class OffsetId:
    """Where a broker stored a message."""

    host: Address
    port: int
    offset: int


@dataclass(frozen=True)
class UniqueId:
    """The parts of a unique id, which a client creates."""

    ip: bytes
    process: int
    loader: int
    millis: int
    counter: int


def encode_offset_id(value: OffsetId) -> str:
    """Write an offset id."""
    return (value.host.packed + struct.pack(">iq", value.port, value.offset)).hex().upper()


def decode_offset_id(text: str) -> OffsetId:
    """Read an offset id of 32 or 56 digits."""
    data = bytes.fromhex(text)
    port, offset = struct.unpack(">iq", data[-12:])
    return OffsetId(ip_address(data[:-12]), port, offset)


def encode_unique_id(value: UniqueId) -> str:
    """Write a unique id."""
    rest = struct.pack(">HIIH", value.process, value.loader, value.millis, value.counter)
    return (value.ip + rest).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """Read a unique id of 32 or 56 digits."""
    data = bytes.fromhex(text)
    return UniqueId(data[:-12], *struct.unpack(">HIIH", data[-12:]))
