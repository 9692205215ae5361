"""`pyrmq store usage`: disk use by topic.

The entries of the consume queues have the size of each record, so a twentieth of the log is read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.cli.log.directory import StoreDirectory, Units
from pyrmq.cli.output import print_json, print_rows

if TYPE_CHECKING:
    import argparse

_HEADERS = ["topic", "queues", "messages", "log bytes", "queue bytes", "share %"]
_BLOCK = 512


@dataclass(slots=True)
class Use:
    """What a topic uses.

    Attributes:
        queues: Its queues.
        messages: Messages that the log still has.
        log_bytes: Their bytes in the log.
        queue_bytes: Bytes of its queue files on the disk.
    """

    queues: int = 0
    messages: int = 0
    log_bytes: int = 0
    queue_bytes: int = 0


def run(given: argparse.Namespace) -> int:
    """Run `pyrmq store usage` with these arguments."""
    directory = StoreDirectory(given.directory, given.commit_log)
    found = by_topic(directory)
    log = disk_bytes(directory.commit_log)
    ranked = sorted(found.items(), key=lambda one: (-one[1].log_bytes, one[0]))
    rows = [
        (
            topic,
            use.queues,
            use.messages,
            use.log_bytes,
            use.queue_bytes,
            round(100 * use.log_bytes / log, 1) if log else 0.0,
        )
        for topic, use in ranked
    ]
    print_rows(_HEADERS, rows, as_json=given.json)
    named = sum(use.log_bytes for use in found.values())
    parts = {
        "log": log,
        "log_of_no_queue": max(0, log - named),
        "queues": disk_bytes(directory.root / "consumequeue"),
        "index": disk_bytes(directory.root / "index"),
        "timers": disk_bytes(directory.root / "timerlog") + _on_disk(directory.root / "timerwheel"),
        "config": disk_bytes(directory.root / "config"),
    }
    if given.json:
        print_json({"total": parts})
        return 0
    mib = 1 << 20
    print()
    print(", ".join(f"{name.replace('_', ' ')} {size // mib} MiB" for name, size in parts.items()))
    print(
        "log of no queue: files that are made ahead, deleted topics, and messages of transactions"
    )
    return 0


def by_topic(directory: StoreDirectory) -> dict[str, Use]:
    """What each topic uses."""
    found: dict[str, Use] = {}
    start = directory.start()
    with Units(directory) as units:
        for topic, queue_id in directory.queues():
            use = found.setdefault(topic, Use())
            use.queues += 1
            messages, size = units.sizes(topic, queue_id, start)
            use.messages += messages
            use.log_bytes += size
            place = directory.root / "consumequeue" / topic / str(queue_id)
            use.queue_bytes += disk_bytes(place)
    return found


def disk_bytes(directory: Path) -> int:
    """Bytes that the files below a directory take on the disk; holes take none."""
    total = 0
    for place, _, names in os.walk(directory):
        total += sum(_on_disk(Path(place) / name) for name in names)
    return total


def _on_disk(path: Path) -> int:
    try:
        return path.stat().st_blocks * _BLOCK
    except FileNotFoundError:
        # Deleted by retention since it was listed.
        return 0
