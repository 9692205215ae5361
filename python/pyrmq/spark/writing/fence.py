"""Files of the exactly-once sink next to the checkpoint: which batch was begun, which is done.

```text
<checkpoint>/pyrmq-sink/7.fence    batch 7 is in the topic, complete
<checkpoint>/pyrmq-sink/7.intent   the next batch was begun: ends of the topic's queues then
```
The intent is written before the first task sends. So a batch that finds one was begun before. Only
then the messages stored since are read back, to leave out rows that are already in the topic. A
batch at or below the fence is not sent at all. Files are written under another name and renamed.

Both name the topic's brokers, each with the time when it was last in a route: a name server that
has just started knows only some of them, and a readback must wait for all.

A number does not identify a batch's rows: a restored checkpoint numbers its batches again. So a
fence also has a hash of what the checkpoint logged of its batch (``offsets/7``) or, in
foreachBatch, the number of rows and a hash of them. A batch that differs is not left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from pyrmq._tables.errors import FenceError
from pyrmq._tables.offsets import Position, parse_version, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyrmq._tables.offsets import Offsets

__all__ = ["Begun", "Fence", "opened"]

_NONE = -1
"""The fence of a query without a finished batch."""
_FORGET_MS = 600_000
"""A broker that was in no route for this time, in ms, has been taken out of its cluster."""


@dataclass(frozen=True)
class Begun:
    """A batch that is about to be sent.

    Attributes:
        done: the newest batch that is in the topic; -1 for none.
        ends: where the topic's queues ended when the batch was first begun.
        again: whether it was begun before.
        query: the query of the batches, if the fence names it.
        run: the run of that query which finished the batch, if the fence names it.
        rows: the number of rows of the newest batch, and a hash of them; None if unknown.
        brokers: the topic's brokers, also those that were in no route when the batch began.
    """

    done: int
    ends: Offsets
    again: bool
    query: str | None = None
    run: str | None = None
    rows: tuple[int, str] | None = None
    brokers: tuple[str, ...] = ()


class Fence:
    """The files of one query's sink.

    Args:
        checkpoint: the query's checkpoint directory, a path or a URI.
        topic: the sink's topic; two sinks cannot share a checkpoint.
        of_query: whether the folder is in a query's checkpoint, and so must match it. False in
            foreachBatch, where it is any folder, and the fence names the query.
    """

    def __init__(self, checkpoint: str, topic: str, *, of_query: bool = True) -> None:
        self._of_query = of_query
        self._files, self._root = opened(checkpoint)
        self._folder = f"{self._root}/pyrmq-sink"
        self._topic = topic

    def begin(self, ends: Callable[[bool], Offsets]) -> Begun:
        """Record that the next batch begins, unless that was recorded before.

        Args:
            ends: returns where the topic's queues end now. Argument true: the topic has been
                written to, so a name server that does not know it yet will.

        Raises:
            FenceError: the files belong to another topic, or the checkpoint was deleted.
        """
        done, fence = self._newest()
        rows = (int(fence["rows"]), str(fence["hash"])) if "hash" in fence else None
        begun = Begun(
            done, {}, again=False, query=fence.get("query"), run=fence.get("run"), rows=rows
        )
        name = f"{done}.intent"
        written = self._read(name)
        if written is not None:
            found = parse_version(written["ends"]).offsets
            seen = {*written.get("brokers", {}), *(queue.broker for queue in found)}
            return replace(begun, ends=found, again=True, brokers=tuple(sorted(seen)))
        found = ends(done != _NONE)
        last_seen = _last_seen(found, fence.get("brokers", {}))
        ends_json = to_json(Position(found))
        self._write(name, {"topic": self._topic, "ends": ends_json, "brokers": last_seen})
        return replace(begun, ends=found, brokers=tuple(sorted(last_seen)))

    def commit(
        self,
        batch: int,
        query: str | None = None,
        run: str | None = None,
        rows: tuple[int, str] | None = None,
    ) -> None:
        """Record that a batch is in the topic, and forget the earlier ones.

        Args:
            batch: its number.
            query: the query, in foreachBatch.
            run: the run of that query, in foreachBatch.
            rows: how many rows the batch had, and a hash of them, in foreachBatch.
        """
        content: dict[str, object] = {"topic": self._topic, "query": query, "run": run}
        names = self._names()
        intents = [number for number, name in names if name.endswith(".intent")]
        if intents:
            content["brokers"] = (self._read(f"{max(intents)}.intent") or {}).get("brokers")
        if self._of_query:
            content["offsets"] = self._logged(batch)
        if rows is not None:
            content["rows"], content["hash"] = rows
        kept = {name: value for name, value in content.items() if value is not None}
        self._write(f"{batch}.fence", kept)
        for number, name in names:
            if number < batch:
                self._files.delete_file(f"{self._folder}/{name}")

    def _newest(self) -> tuple[int, dict[str, Any]]:
        numbers = [number for number, name in self._names() if name.endswith(".fence")]
        if not numbers:
            return _NONE, {}
        done = max(numbers)
        written = self._read(f"{done}.fence") or {}
        if written.get("topic") != self._topic:
            raise FenceError(
                f"{self._folder} belongs to a sink of topic {written.get('topic')}, this one writes"
                f" {self._topic}: give each query its own checkpoint directory"
            )
        if self._of_query:
            self._check_checkpoint(done, written.get("offsets"))
        return done, written

    def _check_checkpoint(self, done: int, sent: str | None) -> None:
        """Refuse a fence ahead of the checkpoint: it would leave out batches of a new query."""
        offsets = f"{self._root}/offsets"
        logged = [
            int(info.base_name)
            for info in self._files.get_file_info(pafs.FileSelector(offsets, allow_not_found=True))
            if info.base_name.isdecimal()
        ]
        if not logged or max(logged) < done:
            raise FenceError(
                f"{self._folder} says that batch {done} was sent, but the checkpoint has no such"
                " batch: it was deleted or restored. Delete this directory, too, to send from the"
                " checkpoint's position on, or use a new checkpoint directory"
            )
        if sent is not None and sent != self._logged(done):
            raise FenceError(
                f"{self._folder} says that batch {done} was sent, but the checkpoint's batch {done}"
                " is another one: the checkpoint was restored. Restore this directory with it, or"
                " delete this directory: then the query sends from the checkpoint's position on,"
                " and rows that the topic got since then are sent again"
            )

    def _logged(self, batch: int) -> str | None:
        """Return a hash of what Spark logged of a batch before it began; None without a log."""
        path = f"{self._root}/offsets/{batch}"
        if self._files.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as stream:
            return hashlib.sha256(stream.read()).hexdigest()

    def _names(self) -> list[tuple[int, str]]:
        found = []
        selector = pafs.FileSelector(self._folder, allow_not_found=True)
        for info in self._files.get_file_info(selector):
            number, _, kind = info.base_name.partition(".")
            if kind in {"fence", "intent"} and number.removeprefix("-").isdecimal():
                found.append((int(number), info.base_name))
        return found

    def _read(self, name: str) -> dict[str, Any] | None:
        path = f"{self._folder}/{name}"
        if self._files.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        with self._files.open_input_stream(path) as stream:
            text = stream.read()
        try:
            written = json.loads(text)
        except ValueError as error:
            raise FenceError(
                f"{path} cannot be read: {text[:80]!r}. If the file is damaged, rows of the last"
                " batch may be in the topic: compare, then delete it"
            ) from error
        assert isinstance(written, dict)
        return written

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        self._files.create_dir(self._folder, recursive=True)
        path = f"{self._folder}/{name}"
        with self._files.open_output_stream(f"{path}.new") as stream:
            stream.write(json.dumps(content).encode())
        self._files.move(f"{path}.new", path)


def _last_seen(ends: Offsets, before: Mapping[str, int]) -> dict[str, int]:
    """Return when each broker was last in a route, now or recently."""
    now_ms = time.time_ns() // 1_000_000
    kept = {broker: at for broker, at in before.items() if at > now_ms - _FORGET_MS}
    return kept | {queue.broker: now_ms for queue in ends}


def opened(folder: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it.

    Raises:
        ArrowInvalid: pyarrow does not know the scheme.
    """
    files, path = pafs.LocalFileSystem(), folder
    if "://" in folder or folder.startswith("file:"):
        files, path = pafs.FileSystem.from_uri(_uri(folder))
    return files, path.rstrip("/")


def _uri(checkpoint: str) -> str:
    """Convert Hadoop's file:/path to a URI's file:///path."""
    if checkpoint.startswith("file:") and not checkpoint.startswith("file://"):
        return "file://" + checkpoint.removeprefix("file:")
    return checkpoint
