"""Compares our codec with Apache's on recorded frames, in turns: nanoseconds for one frame."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import artifacts

from benches.e2e.servers import VERSION
from benches.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 0.05
"""Of each span; a round has hundreds of them, most of which warm Java's classes."""


def _ours(seconds: float) -> str:
    command = ["cargo", "bench", "--quiet", "-p", "pyrmq-remoting", "--bench", "codec"]
    return _run([*command, "--", "--seconds", str(seconds)])


def _apache(seconds: float) -> str:
    frames = ROOT / "tests" / "golden" / "frames"
    java = ["java", "-cp", artifacts.class_path(VERSION), "CodecBench"]
    return _run([*java, str(frames), str(seconds)])


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=900
    )
    return done.stdout


def codec_rows(rounds: int, seconds: float = SECONDS) -> Iterator[Row]:
    """Yield rows for decoding plus encoding each frame, without and with header structure."""
    rows: dict[tuple[str, str, str], Row] = {}
    for _ in range(rounds):
        for side, run in (("ours", _ours), ("apache", _apache)):
            for line in run(seconds).splitlines():
                if not line.startswith("{"):
                    continue
                one = json.loads(line)
                for kind, prefix in (("frame", ""), ("frame and header structure", "typed_")):
                    what = f"codec, {one['frame']}, {one['form']}: {kind}"
                    row = rows.setdefault(
                        (one["frame"], one["form"], kind),
                        Row(what=what, unit="ns", target=">= 5 times", less_is_more=True),
                    )
                    row.add(side, one[f"{prefix}decode_ns"] + one[f"{prefix}encode_ns"])
    yield from rows.values()
