"""`pyrmq query`: SQL over topics; `pyrmq spark doctor`: what every executor can use and reach."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import add_name_server, parser, seconds
from pyrmq.cli.output import print_rows
from pyrmq.cli.times import moment
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession
    from pyspark.sql.types import Row

_SHOWN = 100


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq query` or `pyrmq spark` with these arguments."""
    given = (_query_parser() if verb == "query" else _spark_parser()).parse_args(words)
    if verb == "query":
        return _query(given)
    return _doctor(given)


def _session(given: argparse.Namespace) -> SparkSession:
    from pyrmq.spark.local import session

    conf = dict(_pair(text) for text in given.conf)
    return session(given.master, **conf)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError(f"`--conf {text}`: expected NAME=VALUE")
    return name, value


def _query(given: argparse.Namespace) -> int:
    from pyrmq.spark.query import sql

    options = {"nameServer": given.name_server}
    if given.directory is not None:
        # A path without a slash would be taken for a topic.
        options = {"path": str(Path(given.directory).absolute())}
    for option, text in (("startingTimestamp", given.since), ("endingTimestamp", given.until)):
        if text is not None:
            options[option] = str(round(moment(text).timestamp() * 1000))
    spark = _session(given)
    from pyspark.errors import AnalysisException

    try:
        frame = sql(spark, given.sql, options)
    except AnalysisException as error:
        text = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError(text[0]) from error
    limited = frame.limit(given.limit + 1) if given.limit else frame
    rows = limited.collect()
    shown = rows[: given.limit] if given.limit else rows
    cells = [_cells(row, as_json=given.json) for row in shown]
    print_rows(frame.columns, cells, as_json=given.json)
    if len(rows) > len(shown) and not given.json:
        print(f"... the first {given.limit} rows; --limit 0 shows all")
    return 0


def _cells(row: Row, *, as_json: bool) -> list[Any]:
    return [_cell(value, as_json=as_json) for value in row]


def _cell(value: object, *, as_json: bool) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat(" ", "milliseconds")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict | list) and as_json:
        return json.loads(json.dumps(value, default=str))
    return json.dumps(value, default=str, ensure_ascii=False)


def _doctor(given: argparse.Namespace) -> int:
    from pyrmq.spark.checks import examine_executors

    begun = time.monotonic()
    reports = examine_executors(_session(given), given.name_server, timeout=given.timeout)
    for report in reports:
        if given.json:
            print(json.dumps(asdict(report), ensure_ascii=False))
            continue
        print(f"{report.role} on {report.host}: {report.python}")
        versions = [f"{name} {text}" for name, text in report.versions.items() if text]
        print(f"  {', '.join(versions) or 'none of the packages is installed'}")
        for address, outcome in report.reached.items():
            text = outcome if isinstance(outcome, str) else f"reached in {outcome} ms"
            print(f"  {address}: {text}")
        for problem in report.problems:
            print(f"  error: {problem}")
    wrong = sum(len(report.problems) for report in reports)
    if not given.json:
        executors = sum(report.role == "executor" for report in reports)
        took = time.monotonic() - begun
        print(f"asked {executors} executors in {took:.1f} s, {wrong or 'nothing'} wrong")
    return 1 if wrong else 0


def _add_spark(to: argparse.ArgumentParser) -> None:
    add_name_server(to)
    to.add_argument("--master", default="local[*]", help="Spark master (default: local[*])")
    to.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting; repeatable",
    )


def _query_parser() -> argparse.ArgumentParser:
    made = parser("query", "Run SQL over topics with a local Spark (extra spark-local).")
    made.add_argument("sql", metavar="SQL", help="topics are tables: SELECT * FROM orders")
    made.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        help="a broker's store directory, or its commit log: read it instead of a cluster",
    )
    made.add_argument("--since", help="only messages stored since: 1h, 30m, 7d, or an ISO time")
    made.add_argument("--until", help="only messages stored before")
    made.add_argument(
        "--limit", type=int, default=_SHOWN, help=f"rows to show, 0 for all (default: {_SHOWN})"
    )
    _add_spark(made)
    return made


def _spark_parser() -> argparse.ArgumentParser:
    made = parser("spark", "Check a Spark: packages, servers and clock of every executor.")
    made.add_argument("what", choices=["doctor"], help="doctor: check every executor")
    made.add_argument(
        "--timeout", type=seconds, default=3.0, metavar="SECONDS", help="for each connection"
    )
    _add_spark(made)
    return made
