"""Whether a pipeline may continue from its checkpoint. Without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyrmq._tables.offsets import Position, Queue, to_json
from pyrmq.pipeline import Pipeline, PipelineError, load
from pyrmq.pipeline.resuming import check_rules, check_sink_position

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
[source]
nameServer = "h:1"
topic = "orders"
[quality]
where = "{where}"
reject = "{reject}"
[sink]
format = "parquet"
path = "rows"
"""


def pipeline(folder: Path, where: str = "total > 0", reject: str = "bad") -> Pipeline:
    file = folder / "p.toml"
    file.write_text(FILE.format(where=where, reject=reject))
    return load(file)


def log(folder: Path, part: str, batch: int, offset: int, *, is_done: bool = True) -> None:
    """Write what Spark logs of a batch."""
    base = folder / "p.checkpoint" / part
    for name in ("offsets", "commits"):
        (base / name).mkdir(parents=True, exist_ok=True)
    line = json.dumps(to_json(Position({Queue("orders", "b", 0): offset})))
    (base / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line}\n")
    if is_done:
        (base / "commits" / str(batch)).write_text("v1\n{}")


def sent(folder: Path, name: str) -> None:
    (folder / "rows/_spark_metadata").mkdir(parents=True, exist_ok=True)
    (folder / "rows/_spark_metadata" / name).write_text("v1")


def test_a_sink_that_is_ahead_of_its_checkpoint_is_refused(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    check_sink_position(made)
    for batch in range(3):
        sent(tmp_path, str(batch))
        log(tmp_path, "main", batch, batch)
    check_sink_position(made)
    # The driver died between the sink and the commit: Spark plans the same batch again.
    sent(tmp_path, "3")
    log(tmp_path, "main", 3, 3, is_done=False)
    check_sink_position(made)
    sent(tmp_path, "9.compact")
    with pytest.raises(PipelineError, match=r"batch 9, .* ends at batch 3: it was") as caught:
        check_sink_position(made)
    assert "line 9, key sink.path" in str(caught.value)
    assert "Restore the checkpoint" in str(caught.value)
    assert "start again with an empty path" in str(caught.value)
    for path in sorted((tmp_path / "p.checkpoint").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(PipelineError, match="has none: it was deleted or restored"):
        check_sink_position(made)


def test_rules_may_change_when_both_queries_stand_at_the_same_place(tmp_path: Path) -> None:
    check_rules(pipeline(tmp_path))
    check_rules(pipeline(tmp_path, "total > 1"))
    log(tmp_path, "main", 0, 5)
    log(tmp_path, "rejected", 0, 3)
    log(tmp_path, "rejected", 1, 5)
    check_rules(pipeline(tmp_path, "total > 2"))
    log(tmp_path, "main", 1, 8)
    check_rules(pipeline(tmp_path, "total > 2"))
    with pytest.raises(PipelineError, match="main and rejected are at different positions"):
        check_rules(pipeline(tmp_path, "total > 3"))
    log(tmp_path, "rejected", 2, 8, is_done=False)
    with pytest.raises(PipelineError, match="rejected has not finished batch 2") as caught:
        check_rules(pipeline(tmp_path, "total > 3", "drop"))
    assert "line 5, key quality.where" in str(caught.value)
    # The rules as they were, and the way out that the error names.
    check_rules(pipeline(tmp_path, "total > 2"))
    (tmp_path / "p.checkpoint/rules.json").unlink()
    check_rules(pipeline(tmp_path, "total > 3"))


@pytest.mark.parametrize("reject", ["drop", "fail"])
def test_rules_of_one_query_may_change(tmp_path: Path, reject: str) -> None:
    """A row that fails a run is often why the rule changes."""
    check_rules(pipeline(tmp_path, reject=reject))
    log(tmp_path, "main", 0, 5, is_done=False)
    check_rules(pipeline(tmp_path, "total > 1", reject))
    check_rules(pipeline(tmp_path, "total > 1"))
