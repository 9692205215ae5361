"""Message properties as text: ``key 0x01 value 0x02``, repeated."""

from __future__ import annotations

BETWEEN = "\x01"
AFTER = "\x02"


def decode(text: str) -> dict[str, str]:
    """Return the pairs in order; skip those without a separator, or with an empty key or value."""
    found: dict[str, str] = {}
    for pair in text.split(AFTER):
        key, separator, value = pair.partition(BETWEEN)
        if separator and key and value:
            found[key] = value
    return found


def encode(pairs: dict[str, str]) -> str:
    """Write the pairs in order, each closed by the separator."""
    return "".join(f"{key}{BETWEEN}{value}{AFTER}" for key, value in pairs.items())
