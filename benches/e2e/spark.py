"""Compares Spark over topics with Spark over Kafka, log files with Parquet: `--rows spark`.

One session of two cores runs both sides in turns, warm, on the same rows. A read ends in Spark's
`noop` sink, so nothing but the read is measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyrmq.spark
from benches.e2e import spark_planning
from benches.e2e.rivals.servers import NotAvailableError, kafka
from benches.e2e.rows import warm
from benches.e2e.servers import MEASURED_STORE
from benches.row import Row
from pyrmq import Admin, arrow
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pyrmq.testing import Cluster

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
QUEUES = 4
ROWS = 1_000_000
BATCHES = 3
"""Of an AvailableNow query."""
MICRO_ROWS, MICRO_BATCHES, WARM_BATCHES = 1000, 20, 5
IDLE_S = 10.0
FEW = "body,queueId,queueOffset,storeTimestamp"
FEW_OF_KAFKA = ["value", "partition", "offset", "timestamp"]


@dataclass(frozen=True)
class Plan:
    """One row: what it is called, what it must reach, and the method that measures it."""

    name: str
    what: str
    target: str
    rival: str
    method: str
    arguments: dict[str, Any] = field(default_factory=dict)
    unit: str = "rows/s"
    less_is_more: bool = False


PLANS = (
    Plan(
        "spark-batch",
        "Spark batch, 100 B, four columns / Kafka source",
        ">= 2.5 times",
        "kafka",
        "batch",
        {"size": 100, "few": True},
    ),
    Plan(
        "spark-default",
        "Spark batch, 100 B, default columns / Kafka source with headers",
        ">= 1.3 times",
        "kafka",
        "batch",
        {"size": 100, "few": False},
    ),
    Plan(
        "spark-kib",
        "Spark batch, 1 KiB, default columns / Kafka source with headers",
        ">= 1.5 times",
        "kafka",
        "batch",
        {"size": 1024, "few": False},
    ),
    Plan("spark-now", "AvailableNow / the batch read", ">= 0.8 times", "batch read", "available"),
    Plan(
        "spark-trigger",
        "trigger time of a micro-batch of 1,000 rows, 2 queues, with our daemon / Kafka source",
        "<= 1.4 times",
        "kafka",
        "trigger",
        unit="ms",
        less_is_more=True,
    ),
    Plan(
        "spark-trigger-plain",
        "trigger time of a micro-batch of 1,000 rows, 2 queues, with Spark's daemon / Kafka source",
        "<= 1.8 times",
        "kafka",
        "trigger",
        {"daemon": "pyspark.daemon"},
        unit="ms",
        less_is_more=True,
    ),
    Plan("spark-sink", "DataFrame to topic, 100 B / Kafka sink", ">= 1.5 times", "kafka", "sink"),
    Plan("spark-exact", "exactly-once / at-least-once", ">= 0.9 times", "at-least-once", "exactly"),
    Plan("spark-log", "log files / Parquet of the same rows", ">= 0.5 times", "parquet", "files"),
    Plan(
        "spark-scan",
        "log files into four columns, one core, without Spark",
        ">= 2 GiB/s",
        "",
        "scan",
        unit="GiB/s",
    ),
    Plan(
        "spark-reader",
        "topic into four columns without Spark, 100 B, processor time of reader and broker",
        ">= 2.5 M rows per CPU-second",
        "",
        "reader_alone",
        unit="rows/CPU-s",
    ),
    Plan("spark-arrow", "arrow.read / confluent consume(1000)", ">= 8 times", "kafka", "without"),
    Plan(
        "spark-ten",
        "batch read of a topic / of one with a tenth of its rows",
        ">= 0.91 times (11 times the seconds)",
        "one tenth",
        "ten",
    ),
    Plan(
        "spark-plan",
        "planning 1,000 topics of 4 queues on 2 brokers",
        "<= 1 s",
        "",
        "plan",
        unit="s",
        less_is_more=True,
    ),
    Plan(
        "spark-marks",
        "comparing 64 queues on 2 brokers with a checkpoint",
        "<= 2 ms",
        "",
        "marks",
        unit="ms",
        less_is_more=True,
    ),
    Plan(
        "spark-idle",
        "idle stream, 200 topics of 4 queues on 2 brokers",
        "<= 20 requests/s, <= 2 % of a core, a message is planned within 1 s",
        "",
        "idle",
        unit="",
        less_is_more=True,
    ),
    Plan(
        "spark-export",
        "pyrmq export of 1 M messages of 128 B to Parquet",
        "<= 3 s",
        "",
        "export",
        unit="s",
        less_is_more=True,
    ),
)


def spark_rows(rounds: int, scale: float, names: set[str]) -> Iterator[Row]:
    """Measure these rows; `scale` is the share of a million messages."""
    if find_spec("pyspark") is None:
        print("not available: rows of Spark: pyspark is not installed", file=sys.stderr)
        return
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyrmq-spark-bench-")))
        segment = MEASURED_STORE["mappedFileSizeCommitLog"]
        assert isinstance(segment, int)
        ours = stack.enter_context(
            cluster(processes=True, store=store / "log", mapped_file_size_commit_log=segment)
        )
        (broker,) = ours.brokers
        assert broker.pid is not None
        servers, theirs = {"ours": broker.pid}, None
        try:
            side = stack.enter_context(kafka())
            servers["kafka"], theirs = side.broker_pid, side.name_server
        except NotAvailableError as error:
            print(f"not available: {error}", file=sys.stderr)
        spark = _session(with_kafka=theirs is not None)
        count = max(1000, int(ROWS * scale))
        bench = _Bench(spark, ours, theirs, store, rounds, count, servers)
        stack.callback(lambda: bench.spark.stop())
        for plan in PLANS:
            if plan.name in names and (theirs is not None or plan.rival != "kafka"):
                row = Row(
                    name=plan.name,
                    what=plan.what,
                    unit=plan.unit,
                    target=plan.target,
                    rival=plan.rival,
                    less_is_more=plan.less_is_more,
                )
                further = getattr(bench, plan.method)(row, **plan.arguments)
                yield from (row, *(further or ()))


def _session(*, with_kafka: bool, **more: str) -> SparkSession:
    import pyspark

    settings = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4", **more}
    if with_kafka:
        settings["spark.jars.packages"] = f"{CONNECTOR}:{pyspark.__version__}"
    return pyrmq.spark.session("local[2]", **settings)


@dataclass
class _Bench:
    spark: SparkSession
    ours: Cluster
    kafka: str | None
    folder: Path
    rounds: int
    count: int
    servers: dict[str, int]
    """Process ids of the brokers, by side."""
    _filled: set[str] = field(default_factory=set)
    _numbers: int = 0

    def batch(self, row: Row, *, size: int, few: bool) -> None:
        """Read a topic and a Kafka topic of the same rows."""
        topic = self.filled(size)
        mine = self.reader(topic, columns=FEW) if few else self.reader(topic)
        other = self.of_kafka(topic, headers=not few)
        if few:
            other = other.select(*FEW_OF_KAFKA)
        self.turns(row, {"ours": lambda: _drain(mine), "kafka": lambda: _drain(other)})

    def available(self, row: Row) -> None:
        """Read a topic as a stream that ends, in batches of a million, and as a batch."""
        topic = "RowsThrice"
        for _ in range(BATCHES):
            self.send(self.rows(100), topic)

        def stream() -> None:
            reader = self.spark.readStream.format("rocketmq").options(**self.stream_options())
            self.to_noop(reader.option("maxOffsetsPerTrigger", self.count).load(topic))

        sides = {"ours": stream, "batch read": lambda: _drain(self.reader(topic))}
        self.turns(row, sides, count=BATCHES * self.count)

    def trigger(self, row: Row, *, daemon: str | None = None) -> None:
        """Take topics of two queues in micro-batches of 1,000 rows: their median milliseconds."""
        if daemon is not None:
            self.spark.stop()
            settings = {"spark.python.daemon.module": daemon}
            self.spark = _session(with_kafka=self.kafka is not None, **settings)
        topic = self.of_two_queues()
        for _ in range(self.rounds):
            for name, (kind, options) in {
                "ours": ("rocketmq", self.stream_options()),
                "kafka": ("kafka", {**self.kafka_options(), "startingOffsets": "earliest"}),
            }.items():
                reader = self.spark.readStream.format(kind).options(**options, subscribe=topic)
                progress = self.to_noop(reader.option("maxOffsetsPerTrigger", MICRO_ROWS).load())
                times = [
                    one["durationMs"]["triggerExecution"]
                    for one in progress
                    if one["numInputRows"] == MICRO_ROWS
                ]
                # The first ones start workers and compile.
                row.add(name, statistics.median(times[WARM_BATCHES:]))
        if daemon is not None:
            self.spark.stop()
            self.spark = _session(with_kafka=self.kafka is not None)

    def of_two_queues(self) -> str:
        """Return a topic of two queues, filled on both sides with rows for all micro-batches."""
        from importlib import import_module

        topic = "MicroBatches"
        if topic not in self._filled:
            self._filled.add(topic)
            with Admin(name_server=self.ours.name_server) as admin:
                admin.create_topic(topic, queues=2)
            module = import_module("confluent_kafka.admin")
            kafka_admin = module.AdminClient({"bootstrap.servers": self.kafka})
            for made in kafka_admin.create_topics([module.NewTopic(topic, 2, 1)]).values():
                made.result(60)
            count = MICRO_ROWS * (WARM_BATCHES + MICRO_BATCHES)
            text = "cast(repeat(md5(cast(id AS string)), 3) AS binary)"
            frame = self.spark.range(count).repartition(2)
            self.send(frame.selectExpr(f"{text} AS body", "cast(id % 2 AS int) AS queueId"), topic)
            values = frame.selectExpr(f"{text} AS value", "cast(id % 2 AS int) AS partition")
            self.send_to_kafka(values, topic)
        return topic

    def to_noop(self, frame: DataFrame) -> list[Any]:
        """Run a stream over what is there, and return the progress of its batches."""
        query = frame.writeStream.format("noop").option("checkpointLocation", self.fresh())
        started = query.trigger(availableNow=True).start()
        started.awaitTermination()
        return list(started.recentProgress)

    def stream_options(self) -> dict[str, str]:
        """Return the options of a stream over a whole topic of ours."""
        return {"nameServer": self.ours.name_server, "startingOffsets": "earliest"}

    def sink(self, row: Row) -> None:
        """Write the same rows to a topic and to a Kafka topic."""
        frame = self.rows(100)
        self.turns(
            row,
            {
                "ours": lambda: self.send(frame, "SinkOurs"),
                "kafka": lambda: self.send_to_kafka(frame.selectExpr("body AS value"), "sink"),
            },
        )

    def exactly(self, row: Row) -> None:
        """Stream rows from files to a topic, with both promises."""
        folder = str(self.folder / "rows-100")
        self.rows(100)

        def stream(delivery: str) -> None:
            frame = self.spark.readStream.schema("body BINARY").parquet(folder)
            writer = frame.writeStream.format("rocketmq").options(
                nameServer=self.ours.name_server, topic="SinkExact", delivery=delivery
            )
            writer = writer.option("checkpointLocation", self.fresh())
            writer.trigger(availableNow=True).start().awaitTermination()

        self.send(self.rows(100).limit(1), "SinkExact")
        sides = {"ours": "exactly-once", "at-least-once": "at-least-once"}
        self.turns(row, {name: lambda kind=kind: stream(kind) for name, kind in sides.items()})  # type: ignore[misc]

    def files(self, row: Row) -> None:
        """Read the log files of the broker, and Parquet with the same rows."""
        topic = self.filled(100)
        path = str(self.folder / "parquet-of-log")
        log = self.spark.read.format("rocketmq").option("topic", topic)
        frame = log.load(str(self.ours.store))
        frame.write.mode("overwrite").parquet(path)
        parquet = self.spark.read.parquet(path)
        self.turns(row, {"ours": lambda: _drain(frame), "parquet": lambda: _drain(parquet)})

    def without(self, row: Row) -> None:
        """Read a topic into Arrow, and a Kafka topic by `consume(1000)`; no Spark takes part."""
        topic = self.filled(100)

        def read() -> None:
            arrow.read(topic, name_server=self.ours.name_server, columns=["body"])

        self.turns(row, {"ours": read, "kafka": lambda: self.consume(topic)})

    def ten(self, row: Row) -> None:
        """Read a topic, and one with a tenth of its rows."""
        whole, tenth = self.filled(100), "Tenth"
        part = max(1, self.count // 10)
        self.send(self.rows(100).limit(part), tenth)

        sides = {"ours": (whole, self.count), "one tenth": (tenth, part)}

        def rate(topic: str, count: int) -> float:
            frame = self.reader(topic)
            return self.rate(lambda: _drain(frame), count)

        for name, side in sides.items():
            row.steady[name] = warm(rate, *side)
        for _ in range(self.rounds):
            for name, side in sides.items():
                os.sync()
                row.add(name, rate(*side), server=self.servers["ours"])

    def scan(self, row: Row) -> None:
        """Scan the log files of the broker into columns, without Spark."""
        spark_planning.scan(row, self.rounds, self.ours.store, self.filled(100), FEW)

    def reader_alone(self, row: Row) -> None:
        """Read a topic without Spark."""
        pids = [broker.pid for broker in self.ours.brokers if broker.pid is not None]
        topic = self.filled(100)
        spark_planning.reader(row, self.rounds, self.ours.name_server, topic, FEW, pids)

    def plan(self, row: Row) -> None:
        """Plan a query over many topics."""
        spark_planning.planning(row, self.rounds, self.scaled(1000))

    def marks(self, row: Row) -> None:
        """Compare queues with a checkpoint, as after each start."""
        spark_planning.marks(row, self.rounds)

    def idle(self, row: Row) -> list[Row]:
        """Let a stream over many topics wait."""
        rows = {"requests": row}
        row.unit, row.target = "requests/s", "<= 20 requests/s"
        for name, what, unit, target in (
            ("core", "processor time of planning", "% of a core", "<= 2 %"),
            ("wake", "until a message is planned", "s", "<= 1 s"),
        ):
            rows[name] = Row(
                name=f"spark-idle-{name}",
                what=f"{row.what}: {what}",
                unit=unit,
                target=target,
                rival="",
                less_is_more=True,
            )
        spark_planning.idle(rows, self.rounds, self.scaled(200), IDLE_S)
        return [rows["core"], rows["wake"]]

    def scaled(self, topics: int) -> int:
        """Return how many topics a run of this scale has."""
        return max(20, topics * self.count // ROWS)

    def export(self, row: Row) -> None:
        """Export a topic of 128 bytes a body to Parquet, with the start of the process."""
        topic = self.filled(128)
        command = [sys.executable, "-m", "pyrmq", "export", topic, str(self.folder / "out.parquet")]
        for _ in range(self.rounds):
            begun = time.perf_counter()
            done = [*command, "-n", self.ours.name_server]
            subprocess.run(done, check=True, capture_output=True, timeout=600)
            row.add("ours", time.perf_counter() - begun)

    def turns(
        self, row: Row, sides: dict[str, Callable[[], None]], count: int | None = None
    ) -> None:
        """Warm both sides, then measure them in turns."""
        for name, run in sides.items():
            row.steady[name] = warm(self.rate, run, count)
        for _ in range(self.rounds):
            for name, run in sides.items():
                os.sync()
                row.add(name, self.rate(run, count), server=self.servers.get(name))

    def rate(self, run: Callable[[], None], count: int | None = None) -> float:
        """Return rows a second."""
        begun = time.perf_counter()
        run()
        return (self.count if count is None else count) / (time.perf_counter() - begun)

    def rows(self, size: int) -> DataFrame:
        """Return the rows that both sides have, from Parquet."""
        path = str(self.folder / f"rows-{size}")
        if path not in self._filled:
            self._filled.add(path)
            text = f"repeat(md5(cast(id AS string)), {size // 32 + 1})"
            frame = self.spark.range(self.count).repartition(QUEUES)
            frame.selectExpr(f"cast(substr({text}, 1, {size}) AS binary) AS body").write.parquet(
                path
            )
        return self.spark.read.parquet(path)

    def filled(self, size: int) -> str:
        """Return a topic of bodies of this size, filled on both sides."""
        topic = f"Rows{size}"
        if topic not in self._filled:
            self._filled.add(topic)
            self.send(self.rows(size), topic)
            if self.kafka is not None:
                self.send_to_kafka(self.rows(size).selectExpr("body AS value"), topic)
        return topic

    def send(self, frame: DataFrame, topic: str) -> None:
        """Write a frame to a topic of ours."""
        options = {"nameServer": self.ours.name_server, "topic": topic}
        frame.write.format("rocketmq").mode("append").options(**options).save()

    def send_to_kafka(self, frame: DataFrame, topic: str) -> None:
        """Write a frame to a topic of Kafka's."""
        frame.write.format("kafka").options(**self.kafka_options()).option("topic", topic).save()

    def reader(self, topic: str, **options: str) -> DataFrame:
        """Return a batch read of a topic of ours."""
        made = self.spark.read.format("rocketmq").option("nameServer", self.ours.name_server)
        return made.options(**options).load(topic)

    def of_kafka(self, topic: str, *, headers: bool) -> DataFrame:
        """Return a batch read of a topic of Kafka's."""
        made = self.spark.read.format("kafka").options(**self.kafka_options())
        return made.option("subscribe", topic).option("includeHeaders", headers).load()

    def kafka_options(self) -> dict[str, str]:
        """Return what every use of Kafka needs."""
        assert self.kafka is not None
        return {"kafka.bootstrap.servers": self.kafka}

    def consume(self, topic: str) -> None:
        """Read every value of a topic of Kafka's."""
        from importlib import import_module

        module = import_module("confluent_kafka")
        settings = {"bootstrap.servers": self.kafka, "group.id": self.fresh(), "log_level": 0}
        consumer = module.Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        left = self.count
        while left > 0:
            left -= sum(len(message.value()) > 0 for message in consumer.consume(1000, 5))
        consumer.close()

    def fresh(self) -> str:
        """Return a directory, or a name, that was not used before."""
        self._numbers += 1
        return str(self.folder / f"fresh-{self._numbers}")


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
