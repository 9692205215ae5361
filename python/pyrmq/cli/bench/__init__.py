"""`pyrmq bench produce | consume | roundtrip`: measures a cluster from this machine.

Compare figures only with others of the same machine and hour. `--kafka` measures a Kafka too.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import NAME_SERVER_VARIABLE, parser
from pyrmq.cli.bench.figures import BACKLOG
from pyrmq.cli.output import print_rows
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from pyrmq.cli.bench.figures import Figures

_VERBS = ("produce", "consume", "roundtrip")
_WAYS = ("produce", "batch", "async", "sync")
_SECONDS = 5.0


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq bench` with these arguments."""
    given = _parser().parse_args(words)
    _check(given)
    # Missing libraries are reported before anything is measured.
    confluent = _library("confluent-kafka", "--kafka") if given.kafka else None
    plots = _library("matplotlib", "--plot") if given.plot else None
    from pyrmq.cli.bench import kafka, loads, server

    measured: list[Figures] = []
    with server.of(given.name_server, given.server_pid) as one:
        measured.append(loads.run(given, one))
    if confluent is not None:
        measured.append(kafka.run(given, confluent))
    rows = [one.row() for one in measured]
    print_rows(list(rows[0]), [list(row.values()) for row in rows], as_json=given.json)
    if plots is not None:
        from pyrmq.cli.bench import plot

        plot.write(measured, given.plot, plots)
        print(f"drawn: {given.plot}", file=sys.stderr)
    return 0 if not any(one.failed for one in measured) else 1


def _library(name: str, option: str) -> Any:  # noqa: ANN401 - libraries without types
    try:
        return import_module(name.replace("-", "_"))
    except ModuleNotFoundError:
        raise ConfigError(f"`{option}` needs {name}: `pip install {name}`") from None


def _check(given: argparse.Namespace) -> None:
    least: dict[str, Any] = {"size": 1, "threads": 1, "batch": 1, "queues": 1}
    for name, low in least.items():
        if getattr(given, name) < low:
            raise ConfigError(f"`--{name}` is {getattr(given, name)}: it must be {low} or more")
    for name in ("count", "rate", "seconds"):
        value = getattr(given, name)
        if value is not None and value <= 0:
            raise ConfigError(f"`--{name}` is {value}: it must be above 0")


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "bench",
        "Measure sending, consuming a backlog, or round trips. Without -n, a server is started "
        "over a temporary store and ended afterwards.",
    )
    made.add_argument("what", choices=_VERBS)
    made.add_argument(
        "-n",
        "--name-server",
        metavar="ADDRESS",
        help=f"name servers of a running cluster; {NAME_SERVER_VARIABLE} is ignored",
    )
    made.add_argument("--topic", default="pyrmq-bench", help="default: pyrmq-bench; created if new")
    made.add_argument("--queues", type=int, default=8, help="queues of a new topic (default: 8)")
    made.add_argument("--size", type=int, default=128, help="bytes of a body (default: 128)")
    made.add_argument(
        "--seconds", type=float, default=_SECONDS, help=f"how long (default: {_SECONDS:g})"
    )
    made.add_argument(
        "--count", type=int, help=f"messages, instead of a time (consume: {BACKLOG:,})"
    )
    made.add_argument("--rate", type=float, help="maximum messages per second (default: no limit)")
    made.add_argument("--threads", type=int, default=1, help="sending threads (default: 1)")
    made.add_argument(
        "--how",
        choices=_WAYS,
        default="produce",
        help="method of the producer: produce (batches messages), batch (send_batch), async "
        "(send_async), sync (send) (default: produce)",
    )
    made.add_argument("--batch", type=int, default=32, help="messages per send_batch")
    made.add_argument("--server-pid", type=int, help="process id of the server, for its CPU time")
    made.add_argument("--kafka", metavar="HOST:PORT", help="also measure this Kafka")
    made.add_argument("--plot", metavar="FILE", help="draw rate and latency (needs matplotlib)")
    made.add_argument("--json", action="store_true", help="one JSON object per line")
    return made
