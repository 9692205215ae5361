"""Record what the classes of Apache 4.9.7 say about patterns of white addresses.

Run it with ``python -m tests.interop.record_white_addresses`` (needs Java). It rewrites
``tests/golden/white_addresses.json``; ``crates/auth/src/plain/address.rs`` compares our answers.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address

from tests.interop.driver import Driver
from tests.interop.record import GOLDEN

VERSION = "4.9.7"
PATTERNS, ADDRESSES = 120, 5
SEED = 20_261_127
WRONG = (
    *(
        "192.168.*",
        "*.168.1.1",
        "192.168.1.9-5",
        "192.168.1.1-256",
        "192.168.1.7{1,2}",
        "300.1.1.1",
    ),
    *("192.168.1.1,192.168.1.*", "host", "fe80:*:1", "fe80:1-2:3", "192.168.1.-5", "::*"),
)


def four(chance: random.Random) -> list[int]:
    """Return an address of a small network, as numbers."""
    return [
        chance.choice([10, 192]),
        chance.choice([0, 168]),
        chance.randrange(4),
        chance.randrange(1, 8),
    ]


def six(chance: random.Random) -> list[int]:
    """Return an address of IPv6 with many zeros."""
    return [
        0xFE80,
        0,
        chance.randrange(3),
        0,
        0,
        chance.randrange(2),
        chance.randrange(3),
        chance.randrange(20),
    ]


def ranged(chance: random.Random, value: int, most: int, form: str) -> str:
    """Return a star, or a range that is near a value."""
    if chance.random() < 0.4:
        return "*"
    low = max(1, value - chance.randrange(3))
    return f"{low:{form}}-{min(most, low + chance.randrange(5)):{form}}"


def written(parts: list[int]) -> str:
    """Return an address as a peer has it."""
    if len(parts) == len(four(random.Random(0))):
        return str(IPv4Address(bytes(parts)))
    return str(IPv6Address(b"".join(part.to_bytes(2, "big") for part in parts)))


def pattern_of_four(chance: random.Random, base: list[int]) -> str:
    """Return a pattern near an address of IPv4."""
    parts = [f"{part}" for part in base]
    kind, at = chance.choice(["one", "several", "braces", "range", "range"]), chance.randrange(1, 4)
    if kind == "one":
        return ".".join(parts)
    if kind == "several":
        return ",".join(written(one) for one in (four(chance), base, four(chance)))
    if kind == "braces":
        last = ",".join(str(chance.randrange(1, 8)) for _ in range(4))
        return ".".join(parts[:3]) + ".{" + last + "}"
    parts[at] = ranged(chance, base[at], 255, "d")
    return ".".join([*parts[: at + 1], *["*"] * (3 - at)])


def pattern_of_six(chance: random.Random, base: list[int]) -> str:
    """Return a pattern near an address of IPv6."""
    full = [f"{group:x}" for group in base]
    last = ranged(chance, base[7], 0xFFFF, "x")
    before = f"{max(1, base[6] - 1):x}-{base[6] + 2:x}"
    return chance.choice(
        [
            written(base),
            ",".join(":".join(f"{group:X}" for group in one) for one in (six(chance), base)),
            ":".join(full[:7])
            + ":{"
            + ",".join(f"{chance.randrange(20):x}" for _ in range(6))
            + "}",
            ":".join([*full[:7], last]),
            ":".join([*full[:6], before, "*"]),
            ":".join([*full[: chance.randrange(1, 4)], "*"]),
            f"{full[0]}::{full[5]}:{full[6]}:{last}",
            f"{full[0]}::{full[5]}:{before}:*",
        ]
    )


def pairs_of(chance: random.Random) -> list[tuple[str, str]]:
    """Return a pattern with addresses, most of them near those that it means."""
    draw = chance.choice([four, six])
    base = draw(chance)
    text = (pattern_of_four if draw is four else pattern_of_six)(chance, base)
    if chance.random() < 0.12:
        text = chance.choice([*WRONG, "*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
    found = [(text, written(four(chance))), (text, written(six(chance)))]
    while len(found) < ADDRESSES:
        other, at = list(base), chance.randrange(len(base))
        other[at] = draw(chance)[at]
        found.append((text, written(other)))
    return found


def main() -> None:
    """Write the file."""
    chance = random.Random(SEED)
    pairs = [pair for _ in range(PATTERNS) for pair in pairs_of(chance)]
    with Driver(VERSION) as driver:
        answers = driver.call("acl.matches", pairs="\n".join(" ".join(pair) for pair in pairs))
    rows = [[*pair, answer] for pair, answer in zip(pairs, answers, strict=True)]
    about = {
        "version": VERSION,
        "command": "python -m tests.interop.record_white_addresses",
        "date": datetime.now(UTC).date().isoformat(),
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(about)[:-1]
    text = f'{head}, "rows": [\n{lines}\n]}}\n'
    (GOLDEN / "white_addresses.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
