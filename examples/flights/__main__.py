"""Send flights from a Python producer through our broker into Spark, and kill the broker once.

    python -m examples.flights [--rows 336776] [--out demo-out]

Both halves of Spark's work are pipeline files: flights.toml writes every flight to Parquet;
weather.toml joins windows of flights with a stream of the weather, and sends alerts to a topic.
Ends with a report and two pictures, and with exit code 1 if a flight was lost or doubled, or an
hour differs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from examples.flights import data, plot, plot_weather, report, servers, stream, weather
from examples.flights.sender import Sender
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "flights"
KILL_AT = 0.4
RESTART_AT = 0.7
DOWN_S = 1.0
DRAIN_S = 120.0
OURS = ("store", "parquet", "checkpoint", "weather.checkpoint", "logs")


class Demo:
    """One run: its processes and its progress."""

    def __init__(self, rows: int, out: Path, console: Console, stack: ExitStack) -> None:
        self.rows = rows
        self.out = out
        self.console = console
        self.stack = stack
        self.begun = time.monotonic()
        self.down_s = 0.0

    def say(self, text: str) -> None:
        """Print one line with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self.begun:5.1f} s[/]  {text}")

    def prepare(self) -> None:
        """Start name server, broker and Spark."""
        for name in OURS:
            shutil.rmtree(self.out / name, ignore_errors=True)
        logs = self.out / "logs"
        logs.mkdir(parents=True)
        made: list[SparkSession] = []
        spark = Thread(target=lambda: made.append(stream.session(logs / "spark.log")), daemon=True)
        spark.start()
        names = servers.name_server(logs)
        self.stack.callback(names.end)
        names.start()
        self.broker = servers.broker(names.address, self.out / "store", logs)
        self.stack.callback(self.broker.end)
        seconds = self.broker.start()
        self.say(
            f"name server {names.address} (pid {names.pid}), broker {self.broker.address}"
            f" (pid {self.broker.pid}, ready in {seconds:.2f} s)"
        )
        batch = max(1, min(2_000, self.rows // 20))
        self.sender = Sender(names.address, TOPIC, data.flights(self.rows), batch)
        self.sender.create_topic()
        spark.join()
        if not made:
            raise SystemExit(f"Spark did not start, see {logs / 'spark.log'}; is there a Java 17?")
        self.stack.callback(made[0].stop)
        self.spark = made[0]
        self.names = names.address
        first = stream.pipeline("flights", self.names, self.out)
        self.stream = stream.Run(self.spark, first, every="0 seconds")
        self.stack.callback(self.stream.stop)
        self.stream.start()
        self.stream.await_first_batch()
        self.say(f"Spark {self.spark.version} runs pipeline flights.toml")

    def kill_and_start_again(self) -> None:
        """Kill the broker with -9 and start it again on its store."""
        pid = self.broker.pid
        begun = time.monotonic()
        self.broker.kill()
        self.say(f"[bold red]broker killed with -9[/] (pid {pid})")
        time.sleep(DOWN_S)
        seconds = self.broker.start()
        self.down_s = time.monotonic() - begun
        self.say(f"broker started again on its store (pid {self.broker.pid}, {seconds:.2f} s)")

    def restart_pipeline(self) -> None:
        """Stop the pipeline and start it again from its checkpoint."""
        read = self.stream.read
        self.stream.stop()
        self.say(f"pipeline stopped at {read:,}")
        self.stream.start()
        self.say("pipeline started again from its checkpoint")

    def run(self) -> None:
        """Send and read, with both interruptions."""
        killed = restarted = False
        self.sender.start()
        sending = time.monotonic()
        last_news = sending
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(40),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
        )
        with Progress(*columns, console=self.console, refresh_per_second=4) as progress:
            sent = progress.add_task("acknowledged", total=self.rows, rate="")
            read = progress.add_task("in Parquet", total=self.rows, rate="")
            while True:
                counts = self.sender.counts
                done = counts.acknowledged + counts.found_stored
                taken = self.stream.read
                if (done, taken) != (progress.tasks[0].completed, progress.tasks[1].completed):
                    last_news = time.monotonic()
                rate = f"{done / max(counts.seconds, 0.001):,.0f}/s"
                progress.update(sent, completed=done, rate=rate)
                rate = f"{taken / (time.monotonic() - sending):,.0f}/s"
                progress.update(read, completed=taken, rate=rate)
                if not killed and done >= self.rows * KILL_AT:
                    killed = True
                    self.kill_and_start_again()
                if killed and not restarted and taken >= self.rows * RESTART_AT:
                    restarted = True
                    self.restart_pipeline()
                if self.sender.error is not None:
                    raise SystemExit(f"sending failed: {self.sender.error}")
                if not self.sender.alive and taken >= self.rows:
                    break
                if time.monotonic() - last_news > DRAIN_S:
                    self.say("[bold red]nothing moves any more")
                    break
                time.sleep(0.1)
        self.stream_s = time.monotonic() - sending
        self.stream.stop()

    def second_act(self) -> list[str]:
        """Join windows of the flights with the weather; return what is wrong with the outcome."""
        years = -(-self.rows // data.YEAR_ROWS)
        sent = weather.send(self.names, years)
        self.say(f"second act: {len(sent):,} hours of weather sent, pipeline weather.toml runs")
        self.board = weather.Board(self.names)
        self.stack.callback(self.board.close)
        self.board.open()
        second = stream.Run(self.spark, stream.pipeline("weather", self.names, self.out))
        self.stack.callback(second.stop)
        begun = last_news = time.monotonic()
        batches = 0
        second.start()
        with Live(console=self.console, refresh_per_second=4) as live:
            while second.alive or len(self.board.hours) < self.board.stored():
                came = self.board.take(0.25)
                live.update(self.board.show())
                if came or second.batches > batches:
                    last_news, batches = time.monotonic(), second.batches
                if time.monotonic() - last_news > DRAIN_S:
                    break
        log = f"; the log is {self.out / 'logs/spark.log'}"
        if second.alive:
            raise SystemExit(weather.stuck(DRAIN_S, len(self.board.hours)) + log)
        if not self.board.hours:
            raise SystemExit(weather.no_hours(self.rows) + log)
        self.say(
            f"{len(self.board.hours):,} hours came back in {time.monotonic() - begun:.1f} s,"
            f" {sum(hour.is_alert for hour in self.board.hours):,} of them alerts"
        )
        return self.board.faults(stream.hours(self.rows_written), sent)

    @property
    def rows_written(self) -> DataFrame:
        """The flights in Parquet."""
        return self.spark.read.parquet(str(self.out / "parquet"))

    def findings(self) -> report.Findings:
        """Collect the figures of both sides."""
        counts = self.sender.counts
        begun = time.monotonic()
        written, keys = stream.tally(self.rows_written)
        checked_s = time.monotonic() - begun
        size = counts.bytes / 1e6
        return report.Findings(
            rows=self.rows,
            counts=counts,
            sent=self.sender.tally,
            stored=self.sender.stored(),
            read=self.stream.read,
            written=written,
            keys=keys,
            batches=self.stream.batches,
            rates=[
                (
                    "producer",
                    f"{counts.acknowledged / counts.seconds:,.0f} messages/s,"
                    f" {size / counts.seconds:.0f} MB/s,"
                    f" the broker's {self.down_s:.1f} s away included",
                ),
                (
                    "into Parquet",
                    f"{self.rows / self.stream_s:,.0f} rows/s from the first send to the last row,"
                    f" {self.stream.batches} batches",
                ),
                ("read back and checked", f"{self.rows / checked_s:,.0f} rows/s"),
            ],
        )

    def pictures(self) -> str:
        """Plot the delays; return the files."""
        rows = self.rows_written
        path = self.out / "departures.png"
        plot.draw(
            stream.delays(rows, "hour"),
            stream.delays(rows, "carrier"),
            data.airlines(),
            self.rows,
            path,
        )
        plot_weather.draw(self.board.hours, self.out / "weather.png")
        return f"{path} and {self.out / 'weather.png'}"


def main() -> int:
    """Run the demo; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--rows", type=int, default=data.YEAR_ROWS, help="flights to send")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything goes")
    given = parser.parse_args()
    if given.rows < 1:
        parser.error(f"--rows must be at least 1, found: {given.rows}")
    console = Console(width=None if sys.stdout.isatty() else 110)
    with ExitStack() as stack:
        demo = Demo(given.rows, given.out.resolve(), console, stack)
        demo.prepare()
        stack.callback(demo.sender.stop)
        demo.run()
        equal = report.show(console, demo.findings())
        equal &= report.show_second(console, demo.second_act())
        demo.say(f"pictures: {demo.pictures()}; Parquet, checkpoints, store, logs are beside them")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
