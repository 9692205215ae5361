"""Checks whether a run may continue from its checkpoint: sink, rules and checkpoint must match.

```text
<checkpoint>/rules.json            hash of what judges and changes rows, when the last run began
<checkpoint>/main/offsets/7        batch 7 was planned: where each source ends
<checkpoint>/main/commits/7        batch 7 is done
<sink's path>/_spark_metadata/7    the files of batch 7 are in the sink
```
Spark leaves a batch out if the sink's folder says that it is there. It uses only the number, so a
sink that is ahead of its checkpoint would swallow batches. And rows and rejected rows are two
queries: if a rule changes while one of them is ahead, a row may get into no sink, or into both.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from pyrmq._tables.errors import OffsetError
from pyrmq._tables.offsets import parse_version
from pyrmq.spark.writing.fence import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.pipeline.file import Pipeline

__all__ = [
    "Folder",
    "check_rules",
    "check_sink_position",
    "checkpoint_folder",
    "refuse_position",
]

_log = logging.getLogger("pyrmq.spark")
_RULES = "rules.json"


class Folder:
    """A folder of a checkpoint or sink; empty if pyarrow cannot read it.

    Example:
        >>> Folder("/data/orders.checkpoint").newest("main/offsets")  # doctest: +SKIP
        7
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: pafs.FileSystem | None
        try:
            self.files, self._root = opened(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            _log.warning("%s cannot be checked before the start: %s", path, error)
            self.files, self._root = None, ""

    def newest(self, folder: str) -> int | None:
        """Return the highest number among a folder's files, compacted ones included."""
        return max(self._numbers(folder), default=None)

    def _numbers(self, folder: str) -> Iterator[int]:
        if self.files is None:
            return
        chosen = pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        for info in self.files.get_file_info(chosen):
            name = info.base_name.removesuffix(".compact")
            if name.isdecimal():
                yield int(name)

    def read(self, name: str) -> str | None:
        """Return a file's text; None without it."""
        path = f"{self._root}/{name}"
        if self.files is None or self.files.get_file_info(path).type != pafs.FileType.File:
            return None
        with self.files.open_input_stream(path) as stream:
            return str(stream.read().decode())

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        if self.files is None:
            return
        self.files.create_dir(self._root, recursive=True)
        path = f"{self._root}/{name}"
        with self.files.open_output_stream(f"{path}.new") as stream:
            stream.write(text.encode())
        self.files.move(f"{path}.new", path)


def check_sink_position(pipeline: Pipeline) -> None:
    """Refuse to start when the files of the sink are ahead of the checkpoint.

    Raises:
        PipelineError: the checkpoint was deleted or restored, and the sink was not.
    """
    if pipeline.batch or pipeline.sink["format"] != "parquet":
        return
    path = pipeline.sink["path"]
    sent = Folder(path).newest("_spark_metadata")
    planned = checkpoint_folder(pipeline).newest("main/offsets")
    if sent is None or (planned is not None and planned >= sent):
        return
    refuse_position(pipeline, "path", f"{path} has the files of", sent, planned)


def checkpoint_folder(pipeline: Pipeline) -> Folder:
    """Return the pipeline's checkpoint."""
    return Folder(str(pipeline.checkpoint))


def refuse_position(
    pipeline: Pipeline, key: str, sink_has: str, sent: int, planned: int | None
) -> NoReturn:
    """Raise because a sink is ahead of its checkpoint.

    Raises:
        PipelineError: always.
    """
    stands = "has none" if planned is None else f"ends at batch {planned}"
    pipeline.fail(
        "sink",
        key,
        f"{sink_has} batch {sent}, and the checkpoint {pipeline.checkpoint} {stands}: it was"
        " deleted or restored, and every batch up to that number would be left out. Restore the"
        f" checkpoint that belongs to the sink, or start again with an empty {key}: name another"
        " one, or delete this one",
    )


def check_rules(pipeline: Pipeline) -> None:
    """Refuse changed rules while the rows of a batch may be in one of two sinks; note the rules.

    Raises:
        PipelineError: the rules changed, and the two queries are not at the same position.
    """
    if pipeline.batch:
        return
    folder = Folder(str(pipeline.checkpoint))
    rules = _rules(pipeline)
    written = _noted(folder)
    before = written.get("reject", "fail")
    if written and written["hash"] != rules["hash"] and before not in {"drop", "fail"}:
        unlike = _difference(folder)
        if unlike is not None:
            pipeline.fail(
                "quality" if pipeline.where is not None else "source",
                "where" if pipeline.where is not None else "",
                f"json, steps or quality changed since the last run, and {unlike}: a row could be"
                " in neither sink, or in both. Run the old file until both queries have"
                f" caught up, or delete {folder.path}/{_RULES} to accept the change"
                " nevertheless",
            )
    if written != rules:
        folder.write(_RULES, json.dumps(rules) + "\n")


def _rules(pipeline: Pipeline) -> dict[str, str]:
    steps = [[step.sql, step.python, dict(step.args)] for step in pipeline.steps]
    judged = [pipeline.json, steps, pipeline.where, pipeline.reject]
    text = json.dumps(judged, sort_keys=True, default=str)
    return {"hash": hashlib.sha256(text.encode()).hexdigest(), "reject": pipeline.reject}


def _noted(folder: Folder) -> dict[str, str]:
    try:
        written = json.loads(folder.read(_RULES) or "{}")
    except ValueError:
        return {}
    return written if isinstance(written, dict) and "hash" in written else {}


def _difference(folder: Folder) -> str | None:
    """Return how the two queries differ; None if both have ended at the same position."""
    done = {}
    for part in ("main", "rejected"):
        planned, done[part] = folder.newest(f"{part}/offsets"), folder.newest(f"{part}/commits")
        if planned != done[part]:
            return f"query {part} has not finished batch {planned}"
    places = {part: _place(folder, part, done[part]) for part in done}
    if places["main"] != places["rejected"]:
        return "the queries main and rejected are at different positions"
    return None


def _place(folder: Folder, part: str, batch: int | None) -> object:
    """Return the offsets at the end of a batch; Spark's log has a line for each source."""
    if batch is None:
        return None
    lines = (folder.read(f"{part}/offsets/{batch}") or "").splitlines()[2:]
    try:
        # A source that is read twice, for unreadable bodies and rejected rows, has one position.
        return {tuple(sorted(parse_version(json.loads(line)).offsets.items())) for line in lines}
    except (OffsetError, ValueError):
        return set(lines)
