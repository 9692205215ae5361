"""Decoding and encoding of frames as real servers and clients sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pyrmq._core import Command

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
CODES = {310: "send", 320: "send batch", 11: "pull", 34: "heartbeat", 15: "commit", 105: "route"}


class Recorded(NamedTuple):
    """A recorded frame and the name of its kind."""

    kind: str
    frame: bytes


def _recorded(version: str) -> list[Recorded]:
    """Return the first frame of each kind in `CODES`, in either direction and header form."""
    manifest = json.loads((GOLDEN / "manifest.json").read_text(encoding="utf-8"))
    kinds: dict[str, Recorded] = {}
    for file in manifest["frames"]:
        if file["version"] != version:
            continue
        data = (GOLDEN / file["file"]).read_bytes()
        for one in file["frames"]:
            if one["request"] not in CODES:
                continue
            kind = f"{CODES[one['request']]} {one['kind']} {one['serialize']}"
            frame = data[one["offset"] : one["offset"] + one["size"]]
            kinds.setdefault(kind, Recorded(kind, frame))
    return sorted(kinds.values())


FRAMES = _recorded("5.5.0")


@pytest.mark.parametrize("recorded", FRAMES, ids=[one.kind for one in FRAMES])
@pytest.mark.benchmark(group="decode a frame")
def test_decode(benchmark: BenchmarkFixture, recorded: Recorded) -> None:
    decoded = benchmark(Command.decode, recorded.frame)
    assert decoded is not None
    assert decoded[1] == len(recorded.frame)


@pytest.mark.parametrize("recorded", FRAMES, ids=[one.kind for one in FRAMES])
@pytest.mark.benchmark(group="encode a frame")
def test_encode(benchmark: BenchmarkFixture, recorded: Recorded) -> None:
    decoded = Command.decode(recorded.frame)
    assert decoded is not None
    command, _ = decoded
    frame = benchmark(command.encode)
    assert Command.decode(frame) == (command, len(frame))
