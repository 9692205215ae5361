"""A match of loads that starts no server and no load."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benches.e2e import rivals
from benches.e2e.servers import Side

if TYPE_CHECKING:
    import pytest


def match_of(*servers: str, rounds: int, scale: float) -> rivals.Match:
    """Return a match whose servers have the process of the test."""
    match = rivals.Match.__new__(rivals.Match)
    match.servers = {
        name: Side(name=name, name_server="127.0.0.1:1", broker_pid=os.getpid()) for name in servers
    }
    match._rounds, match._scale = rounds, scale
    return match


def record_loads(into: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Append the name of each load that would run."""

    def run_load(load: str, *_: object) -> dict[str, float]:
        into.append(load)
        return {"figure": 5.0, "cpu_us": 1.0, "resident_mib": 30.0}

    monkeypatch.setattr(rivals, "run_load", run_load)
