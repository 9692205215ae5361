"""The Spark side: pipelines from files, how far they are, and what they wrote."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights.data import Tally

from pyrmq import pipeline as pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from pyrmq.pipeline import Pipeline, Report

_SERVER = "127.0.0.1:9876"
_STOP_S = 60.0


def session(log: Path) -> SparkSession:
    """Start Spark on two cores, with its JVM's output in a file."""
    from pyrmq.spark import session as quiet_session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    with _errors_into(log):
        return quiet_session("local[2]", **settings)


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Make processes started in the block inherit this file as their standard error."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def pipeline(name: str, name_server: str, folder: Path) -> Pipeline:
    """Copy a pipeline file of the demo into its output directory, for its name server; load it."""
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    copy = folder / f"{name}.toml"
    copy.write_text(text.replace(_SERVER, name_server), encoding="utf-8")
    return pipelines.load(copy)


@dataclass
class Run:
    """A pipeline that runs in a thread, and can be stopped and started again.

    Args:
        spark: the session.
        pipeline: what to run.
        every: how often a batch begins; None to end when what is there is done.
    """

    spark: SparkSession
    pipeline: Pipeline
    every: str | None = None
    report: Report | None = None
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None

    def start(self) -> None:
        """Start it, from its checkpoint if there is one."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.pipeline.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it, even in the middle of a batch."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join(_STOP_S)
            self._thread = None

    @property
    def alive(self) -> bool:
        """Whether it still runs.

        Raises:
            SystemExit: it failed; the text says why, in one line.
        """
        error: object = self._error or (self.report.error if self.report else None)
        if error:
            cause = (str(error) or type(error).__name__).splitlines()[0]
            raise SystemExit(f"pipeline {self.pipeline.name} failed: {cause}")
        return self._thread is not None and self._thread.is_alive()

    def await_first_batch(self) -> None:
        """Wait until the first batch is planned, and so has found the topic."""
        while self.alive and not (self._folder / "offsets/0").exists():
            time.sleep(0.1)

    @property
    def read(self) -> int:
        """Return how many messages the finished batches have read, from their offsets."""
        _ = self.alive
        last = max(self._finished(), default=None)
        if last is None:
            return 0
        text = (self._folder / "offsets" / str(last)).read_text(encoding="utf-8")
        return _sum(json.loads(text.splitlines()[2]))

    @property
    def batches(self) -> int:
        """Return the number of finished batches."""
        return len(self._finished())

    @property
    def _folder(self) -> Path:
        return Path(str(self.pipeline.checkpoint)) / "main"

    def _finished(self) -> list[int]:
        commits = (self._folder / "commits").glob("*")
        return [int(path.name) for path in commits if path.name.isdecimal()]

    def _run(self) -> None:
        try:
            self.report = pipelines.run(
                self.spark, self.pipeline, every=self.every, stop=self._stop
            )
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._error = error


def _sum(offsets: dict[str, Any]) -> int:
    return sum(
        offset
        for topic, brokers in offsets.items()
        if not topic.startswith("@")
        for queues in brokers.values()
        for offset in queues.values()
    )


def tally(rows: DataFrame) -> tuple[Tally, int]:
    """Count the rows by month, and the distinct keys of all."""
    months = rows.groupBy("month").agg(
        *[
            _expr("count(*) AS count"),
            _expr("sum(checksum) AS checksum"),
            _expr("count(DISTINCT key) AS keys"),
        ]
    )
    found = months.collect()
    held = Tally({row.month: (row["count"], row.checksum) for row in found})
    return held, sum(row["keys"] for row in found)


def delays(rows: DataFrame, by: str) -> pd.DataFrame:
    """Return departure delays in minutes: quartiles, mean, share over 15 minutes, by a column."""
    return (
        rows.where("dep_delay IS NOT NULL")
        .groupBy(by)
        .agg(
            _expr("count(*) AS flights"),
            _expr("avg(dep_delay) AS mean"),
            _expr("percentile_approx(dep_delay, array(0.25, 0.5, 0.75, 0.9)) AS quantiles"),
            _expr("avg(cast(dep_delay > 15 AS int)) AS late"),
        )
        .orderBy(by)
        .toPandas()
    )


def hours(rows: DataFrame) -> dict[tuple[str, str], tuple[int, int]]:
    """Return flights and minutes of delay by airport and scheduled hour, counted at once."""
    found = (
        rows.groupBy("origin", _expr("date_format(time_hour, 'yyyy-MM-dd HH:mm') AS at"))
        .agg(_expr("count(*) AS flights"), _expr("coalesce(sum(dep_delay), 0) AS minutes"))
        .collect()
    )
    return {(row.origin, row["at"]): (row.flights, row.minutes) for row in found}


def _expr(text: str) -> Any:  # noqa: ANN401 - a Spark column
    from pyspark.sql.functions import expr

    return expr(text)
