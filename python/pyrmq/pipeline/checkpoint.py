"""The progress of a pipeline, from its checkpoint and the brokers. Without Spark."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.offsets import Position, parse_version
from pyrmq._tables.options.topic_options import Options
from pyrmq.spark.progress.figures import Lag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.pipeline.file import Pipeline

__all__ = ["PipelineStatus", "running_note", "status"]

_NOTE = "running.json"


@dataclass(frozen=True)
class PipelineStatus:
    """The progress of a pipeline.

    Attributes:
        name: its name.
        batch: the last batch that is done; None before the first.
        seconds_ago: how long ago that was.
        lag: the current lag; None before the first batch.
        away: brokers that do not answer, so that their queues are not in the lag.
        error: why the last run failed; None if it did not, or while one is running.
        running: start of the current run in seconds since 1970; None without one.
    """

    name: str
    batch: int | None
    seconds_ago: float | None
    lag: Lag | None
    away: tuple[str, ...]
    error: str | None
    running: float | None = None

    def __str__(self) -> str:
        """Return the status as one line."""
        if self.batch is None or self.lag is None:
            text = f"{self.name}: has not finished a batch"
        else:
            ago = f", {self.seconds_ago:,.0f} s ago" if self.seconds_ago is not None else ""
            text = f"{self.name}: batch {self.batch} done{ago}, {self.lag}"
        if self.away:
            text += f"; without brokers that do not answer: {', '.join(self.away)}"
        if self.running is not None:
            text += f"; running for {max(0.0, time.time() - self.running):,.0f} s"
        return text + (f"; the last run failed: {self.error}" if self.error else "")


def status(pipeline: Pipeline) -> PipelineStatus:
    """Compare a pipeline's checkpoint with its brokers.

    Raises:
        RmqError: no name server answers.
        PipelineError: the pipeline reads a directory, or its checkpoint is elsewhere.

    Example:
        >>> str(status(load("orders.toml")))  # doctest: +SKIP
        'orders: batch 7 done, 12 s ago, no lag'
    """
    if "path" in pipeline.source:
        pipeline.fail("source", "path", "a directory is read as a whole: there is no status")
    if "://" in str(pipeline.checkpoint):
        pipeline.fail("sink", "checkpoint", "the status needs a checkpoint on this machine")
    folder = Path(str(pipeline.checkpoint))
    batch = _newest(folder / "main" / "commits")
    running, error = _last_run(folder / "report")
    if batch is None:
        return PipelineStatus(pipeline.name, None, None, None, (), error, running)
    done = folder / "main" / "commits" / str(batch)
    position = _position(folder / "main" / "offsets" / str(batch))
    lag, away = _lag(pipeline, position)
    return PipelineStatus(
        pipeline.name, batch, time.time() - done.stat().st_mtime, lag, away, error, running
    )


@contextmanager
def running_note(pipeline: Pipeline) -> Iterator[None]:
    """Record next to the checkpoint that a run is in progress, for `status`.

    The note is locked while the run's process exists. A killed process leaves the note there,
    without an end.
    """
    if "://" in str(pipeline.checkpoint):
        yield
        return
    file = Path(str(pipeline.checkpoint)) / "report" / _NOTE
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as note:
        with suppress(OSError):
            # Spark stops one of two concurrent runs; both may write here.
            fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        note.truncate(0)
        note.write(json.dumps({"pid": os.getpid(), "started_at": round(time.time(), 3)}) + "\n")
        note.flush()
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def _lag(pipeline: Pipeline, position: Position) -> tuple[Lag, tuple[str, ...]]:
    cluster = RemoteCluster(Options.parse(pipeline.source, batch=False))
    try:
        topics = {queue.topic for queue in position.offsets}
        snapshot = cluster.snapshot(sorted(topics), expected=position.offsets, lenient=True)
    finally:
        cluster.close()
    queues = {
        queue: held.highest - position.offsets[queue]
        for queue, held in snapshot.bounds.items()
        if queue in position.offsets and held.highest > position.offsets[queue]
    }
    stored = [position.marks[queue].stored_ms for queue in queues if queue in position.marks]
    oldest = max(0.0, time.time() - min(stored) / 1000) if stored else None
    lag = Lag(rows=sum(queues.values()), queues=queues, oldest_s=oldest)
    return lag, tuple(sorted(snapshot.away))


def _newest(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    numbers = [int(file.name) for file in folder.iterdir() if file.name.isdecimal()]
    return max(numbers, default=None)


def _position(file: Path) -> Position:
    """Read Spark's log of offsets: a version, metadata, then a line for each source."""
    line = file.read_text(encoding="utf-8").splitlines()[2]
    return parse_version(json.loads(line))


def _last_run(folder: Path) -> tuple[float | None, str | None]:
    """Return the start of the current run, or why the last one failed."""
    try:
        with (folder / _NOTE).open(encoding="utf-8") as note:
            try:
                fcntl.flock(note, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return _started(note.read()), None
            pid = json.loads(note.read() or "{}").get("pid")
            return None, f"its process {pid} ended without a report, as after a kill"
    except (OSError, ValueError):
        return None, _last_error(folder / "report.json")


def _started(note: str) -> float:
    try:
        return float(json.loads(note)["started_at"])
    except (ValueError, KeyError):
        return time.time()


def _last_error(file: Path) -> str | None:
    try:
        report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    error: str | None = report.get("error")
    return error
