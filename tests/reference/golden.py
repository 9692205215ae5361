"""Reads ``tests/golden``: frames and stores recorded from the real RocketMQ, and their manifest."""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"


@dataclass(frozen=True)
class GoldenFrame:
    """One recorded frame: its sender, its occasion and its bytes."""

    version: str
    serialize: str
    link: str
    sender: str
    kind: str
    request: int
    code: int
    what: str
    raw: bytes

    def __str__(self) -> str:
        """Return its name for test reports."""
        return f"{self.version}-{self.serialize}-{self.request}-{self.kind}-{self.code}-{self.what}"


@cache
def manifest() -> dict[str, Any]:
    """Return the manifest as stored in the file."""
    tree: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())
    return tree


def content(store: dict[str, str]) -> dict[str, Any]:
    """Return the content of a store: settings, topics, messages, committed offsets."""
    tree: dict[str, Any] = json.loads(lzma.decompress((GOLDEN / store["content"]).read_bytes()))
    return tree


@cache
def frames() -> tuple[GoldenFrame, ...]:
    """Return every recorded frame."""
    found = []
    for row in manifest()["frames"]:
        data = (GOLDEN / row["file"]).read_bytes()
        for entry in row["frames"]:
            raw = data[entry["offset"] : entry["offset"] + entry["size"]]
            names = ("link", "sender", "kind", "request", "code", "what")
            found.append(
                GoldenFrame(
                    version=row["version"],
                    serialize=entry["serialize"],
                    raw=raw,
                    **{name: entry[name] for name in names},
                )
            )
    return tuple(found)
