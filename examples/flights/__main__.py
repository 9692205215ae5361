"""Send flights from a Python producer through our broker into Spark, and kill the broker once.

    python -m examples.flights [--rows 336776] [--out demo-out]

Ends with a report and a plot, and with exit code 1 if a flight was lost or doubled.
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

from examples.flights import data, plot, report, servers, stream
from examples.flights.sender import Sender

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

TOPIC = "flights"
KILL_AT = 0.4
RESTART_QUERY_AT = 0.7
DOWN_S = 1.0
DRAIN_S = 120.0
OURS = ("store", "parquet", "checkpoint", "logs")


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
        self.stream = stream.Stream(made[0], names.address, TOPIC, self.out)
        self.stack.callback(self.stream.stop)
        self.stream.start()
        self.stream.await_first_batch()
        self.say(f"Spark {made[0].version} runs the query")

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

    def restart_query(self) -> None:
        """Stop the query and start it again from its checkpoint."""
        read = self.stream.read
        self.stream.stop()
        self.say(f"query stopped at {read:,}")
        self.stream.start()
        self.say("query started again from its checkpoint")

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
                if killed and not restarted and taken >= self.rows * RESTART_QUERY_AT:
                    restarted = True
                    self.restart_query()
                if self.sender.error is not None:
                    raise RuntimeError("sending failed") from self.sender.error
                if not self.sender.alive and taken >= self.rows:
                    break
                if time.monotonic() - last_news > DRAIN_S:
                    self.say("[bold red]nothing moves any more")
                    break
                time.sleep(0.1)
        self.stream_s = time.monotonic() - sending

    def findings(self) -> report.Findings:
        """Collect the figures of both sides."""
        counts = self.sender.counts
        begun = time.monotonic()
        written, keys = stream.tally(self.stream.rows())
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

    def picture(self) -> Path:
        """Plot the delays."""
        rows = self.stream.rows()
        path = self.out / "departures.png"
        plot.draw(
            stream.delays(rows, "hour"),
            stream.delays(rows, "carrier"),
            data.airlines(),
            self.rows,
            path,
        )
        return path


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
        path = demo.picture()
        demo.say(f"picture: {path}; Parquet, checkpoint, store and logs are beside it")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
