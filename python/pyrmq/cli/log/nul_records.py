"""Distinguishes records that lost a sector from those whose sender put zero bytes in a property.

A start after a crash does the same: see "Zero bytes in properties" in docs/store.md.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NOTE = struct.Struct(">qiIqII")
_SEALED = 24
"""Bytes of a note that its checksum covers."""
_MAGIC = b"PYRMQ-N1"
_LINE = "nul records from "
"""Precedes, in `abort`, the position from which all such records are noted."""


class NulRecords:
    """The notes of whole records that look torn.

    Args:
        root: directory of the store.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: set[tuple[int, int, int]] = set()
        self._complete_from = 0
        self._read()

    def is_torn(self, position: int, record: bytes) -> bool:
        """Whether a record that looks torn has lost a sector: a whole one has a note."""
        noted_from = self._noted_from()
        if noted_from is None or position < max(noted_from, self._complete_from):
            return False
        note = (position, len(record), zlib.crc32(record))
        if note not in self._known:
            # A running broker may have written the note since.
            self._read()
        return note not in self._known

    def _noted_from(self) -> int | None:
        try:
            text = (self._root / "abort").read_text(errors="replace")
        except OSError:
            return None
        lines = [line for line in text.splitlines() if line.startswith(_LINE)]
        number = lines[-1].removeprefix(_LINE) if lines else ""
        return int(number) if number.isdigit() else None

    def _read(self) -> None:
        try:
            data = (self._root / "nulRecords").read_bytes()
        except OSError:
            return
        whole = len(data) - len(data) % _NOTE.size
        for at in range(0, whole, _NOTE.size):
            position, size, crc, durable, seal, _ = _NOTE.unpack_from(data, at)
            if zlib.crc32(_MAGIC + data[at : at + _SEALED]) == seal:
                self._known.add((position, size, crc))
                self._complete_from = max(self._complete_from, durable)
