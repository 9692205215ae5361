"""The remoting frame and its two header forms.

::

    offset  size  field
    0       4     total length, counts everything after itself
    4       1     serialize type: 0 JSON, 1 ROCKETMQ binary
    5       3     header length
    8       h     header
    8+h     rest  body; none when the length is zero
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

JSON = 0
ROCKETMQ = 1

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY"),
    *("OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"),
)
"""Language names by their number in the binary header."""

RESPONSE = 1
ONEWAY = 2

SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


class FrameError(ValueError):
    """The bytes are not a frame."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One remoting command.

    ``fields`` is None without an ``extFields`` member, and keeps the order of the wire.
    ``language`` is a name of ``LANGUAGES``; an unknown number is kept as a decimal text.
    """

    code: int
    language: str = "JAVA"
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: dict[str, str] | None = None
    body: bytes | None = None
    serialize_type: int = JSON

    @property
    def is_response(self) -> bool:
        """Whether bit 0 of the flag is set."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether bit 1 of the flag is set."""
        return bool(self.flag & ONEWAY)


def split(data: bytes) -> list[bytes]:
    """Split frames that are stored back to back.

    Raises:
        FrameError: the last frame is cut off.
    """
    frames = []
    at = 0
    while at < len(data):
        size = 4 + int.from_bytes(data[at : at + 4], "big")
        if size < 8 or at + size > len(data):
            raise FrameError(f"frame cut off at byte {at}: needs {size}, has {len(data) - at}")
        frames.append(data[at : at + size])
        at += size
    return frames


def decode(data: bytes) -> Frame:
    """Decode exactly one frame.

    Raises:
        FrameError: the lengths do not match or the header is invalid.
    """
    if len(data) < 8 or 4 + int.from_bytes(data[:4], "big") != len(data):
        raise FrameError(f"total length does not fit {len(data)} bytes")
    header_end = 8 + int.from_bytes(data[5:8], "big")
    if header_end > len(data):
        raise FrameError(f"header ends at {header_end}, after the frame's {len(data)} bytes")
    header, body = data[8:header_end], data[header_end:] or None
    if data[4] == JSON:
        return _decode_json(header, body)
    if data[4] == ROCKETMQ:
        return _decode_binary(header, body)
    raise FrameError(f"unknown serialize type: {data[4]}")


def encode(frame: Frame) -> bytes:
    """Encode one frame in its header form."""
    header = _encode_json(frame) if frame.serialize_type == JSON else _encode_binary(frame)
    body = frame.body or b""
    length = 4 + len(header) + len(body)
    return (
        length.to_bytes(4, "big")
        + bytes([frame.serialize_type])
        + len(header).to_bytes(3, "big")
        + header
        + body
    )


def _decode_json(header: bytes, body: bytes | None) -> Frame:
    try:
        tree: dict[str, Any] = json.loads(header)
    except ValueError as error:
        raise FrameError(f"header is no JSON: {header!r}") from error
    fields = tree.get("extFields")
    return Frame(
        code=tree["code"],
        language=tree.get("language", "JAVA"),
        version=tree.get("version", 0),
        opaque=tree.get("opaque", 0),
        flag=tree.get("flag", 0),
        remark=tree.get("remark"),
        fields=None
        if fields is None
        else {key: text for key, text in fields.items() if text is not None},
        body=body,
        serialize_type=JSON,
    )


def _encode_json(frame: Frame) -> bytes:
    members = [f'"code":{frame.code}']
    if frame.fields is not None:
        pairs = ",".join(f"{quoted(key)}:{quoted(value)}" for key, value in frame.fields.items())
        members.append(f'"extFields":{{{pairs}}}')
    members += [
        f'"flag":{frame.flag}',
        f'"language":{quoted(frame.language)}',
        f'"opaque":{frame.opaque}',
    ]
    if frame.remark is not None:
        members.append(f'"remark":{quoted(frame.remark)}')
    members += ['"serializeTypeCurrentRPC":"JSON"', f'"version":{frame.version}']
    return ("{" + ",".join(members) + "}").encode()


def quoted(text: str) -> str:
    """Write a JSON string: only quotes, backslashes and control characters are escaped."""
    out = ['"']
    for char in text:
        if char in SHORT_ESCAPES:
            out.append(SHORT_ESCAPES[char])
        elif char < " ":
            out.append(f"\\u{ord(char):04x}")
        else:
            out.append(char)
    return "".join(out) + '"'


def _decode_binary(header: bytes, body: bytes | None) -> Frame:
    try:
        code, language, version, opaque, flag, remark_size = struct.unpack_from(">hBhiii", header)
        at = 17
        remark = header[at : at + remark_size].decode() if remark_size > 0 else None
        at += remark_size
        (fields_size,) = struct.unpack_from(">i", header, at)
        at += 4
        fields: dict[str, str] = {}
        end = at + fields_size
        if end > len(header):
            raise FrameError(f"fields end at {end}, after the header's {len(header)} bytes")
        while at < end:
            (key_size,) = struct.unpack_from(">h", header, at)
            key = header[at + 2 : at + 2 + key_size].decode()
            at += 2 + key_size
            (value_size,) = struct.unpack_from(">i", header, at)
            fields[key] = header[at + 4 : at + 4 + value_size].decode()
            at += 4 + value_size
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"broken binary header: {header!r}") from error
    return Frame(
        code=code,
        language=LANGUAGES[language] if language < len(LANGUAGES) else str(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        fields=fields if fields_size > 0 else None,
        body=body,
        serialize_type=ROCKETMQ,
    )


def _encode_binary(frame: Frame) -> bytes:
    language = (
        LANGUAGES.index(frame.language) if frame.language in LANGUAGES else int(frame.language)
    )
    remark = (frame.remark or "").encode()
    fields = b""
    for key, value in (frame.fields or {}).items():
        name, text = key.encode(), value.encode()
        fields += struct.pack(">h", len(name)) + name + struct.pack(">i", len(text)) + text
    head = struct.pack(">hBhii", frame.code, language, frame.version, frame.opaque, frame.flag)
    return head + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(fields)) + fields
