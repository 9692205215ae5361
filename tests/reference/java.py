"""Java's string hash and the numbers that RocketMQ derives from it."""

from __future__ import annotations


def string_hash(text: str) -> int:
    """Return ``String.hashCode``: over UTF-16 units, a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def index_hash(key: str) -> int:
    """Return the key index hash of ``topic#key``: the absolute value, 0 for the smallest number."""
    value = abs(string_hash(key))
    return 0 if value == 1 << 31 else value


def tags_code(tags: str | None) -> int:
    """Return the tag number of a consume queue entry; 0 without tags."""
    return string_hash(tags) if tags else 0
