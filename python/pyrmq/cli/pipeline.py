"""`pyrmq pipeline`: write, check, run and watch a pipeline that is defined in one file.

Exit status: 0 done, 1 it failed, 2 the file or an argument is wrong.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyrmq.cli.arguments import parser
from pyrmq.cli.output import print_json, show_progress, shows_progress
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pyrmq.pipeline import Pipeline
    from pyrmq.spark.progress.figures import BatchFigures


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq pipeline` with these arguments."""
    del verb
    given = _parser().parse_args(words)
    if given.action == "init":
        return _init(given.file, as_json=given.json)
    from pyrmq.pipeline import load

    pipeline = load(given.file)
    if given.action == "status":
        return _status(pipeline, as_json=given.json)
    if given.action == "check":
        return _check(pipeline, given.master, as_json=given.json)
    return _run(pipeline, given)


def _init(kind: str, *, as_json: bool) -> int:
    from pyrmq.pipeline.templates import TEMPLATES

    if kind not in TEMPLATES:
        raise ConfigError(f"`{kind}`: expected one of {', '.join(TEMPLATES)}")
    if as_json:
        print_json({"kind": kind, "text": TEMPLATES[kind]})
    else:
        print(TEMPLATES[kind], end="")
    return 0


def _status(pipeline: Pipeline, *, as_json: bool) -> int:
    from pyrmq.pipeline import status

    found = status(pipeline)
    if as_json:
        values = {key: value for key, value in asdict(found).items() if key != "lag"}
        lag = None if found.lag is None else found.lag.rows
        print(json.dumps({**values, "lag": lag}))
    else:
        print(found)
    return 1 if found.error or found.away else 0


def _check(pipeline: Pipeline, master: str | None, *, as_json: bool) -> int:
    spark = _session(pipeline, master)
    # Without Spark this import fails, and the session says what is missing.
    from pyrmq.pipeline import check

    found = check(spark, pipeline)
    if as_json:
        print_json({"file": str(pipeline.file), "found": found})
        return 0
    for line in found:
        print(line)
    print(f"{pipeline.file.name}: nothing wrong")
    return 0


def _run(pipeline: Pipeline, given: argparse.Namespace) -> int:
    from pyrmq.pipeline.options import period_ms

    if given.every is not None:
        # Spark takes seconds to start.
        period_ms(given.every)
    spark = _session(pipeline, given.master)
    from pyrmq.pipeline import run as run_pipeline

    try:
        report = run_pipeline(
            spark, pipeline, every=given.every, on_batch=_batch_printer(as_json=given.json)
        )
    finally:
        if not given.json:
            show_progress("")
    if given.json:
        values = {key: value for key, value in report.as_json().items() if key != "batches"}
        print(json.dumps(values))
    else:
        print(report)
        if "://" not in str(pipeline.checkpoint):
            print(f"report: {pipeline.checkpoint}/report/report.html")
    return 1 if report.error else 0


def _batch_printer(*, as_json: bool) -> Callable[[BatchFigures], None]:
    """Return a printer of batches, one line each; on a terminal each line replaces the last."""
    replaces = shows_progress() and not as_json

    def print_batch(figures: BatchFigures) -> None:
        if replaces:
            show_progress(str(figures))
            return
        text = json.dumps(figures.as_json()) if as_json else str(figures)
        print(text, file=sys.stdout if as_json else sys.stderr, flush=True)

    return print_batch


def _session(pipeline: Pipeline, master: str | None) -> SparkSession:
    from pyrmq.spark.local import session

    conf = dict(pipeline.spark)
    chosen = master or conf.pop("master", "local[*]")
    conf.pop("master", None)
    return session(chosen, **conf)


def _parser() -> argparse.ArgumentParser:
    made = parser("pipeline", "Write, check, run and watch a pipeline that is defined in one file.")
    actions = made.add_subparsers(dest="action", required=True, metavar="ACTION")
    init = actions.add_parser("init", help="print a file to start from", allow_abbrev=False)
    init.add_argument(
        "file",
        metavar="KIND",
        help="lake, trace, replay, backfill, mirror, quality or dedupe",
    )
    check = actions.add_parser(
        "check", help="plan it and read one row; nothing is written", allow_abbrev=False
    )
    run_ = actions.add_parser(
        "run",
        help="run it once over the messages that exist, or continuously",
        allow_abbrev=False,
    )
    status = actions.add_parser(
        "status",
        help="compare its checkpoint with the brokers, without Spark",
        allow_abbrev=False,
    )
    for action in (check, run_, status):
        action.add_argument("file", metavar="FILE.toml", help="the pipeline")
    for action in (check, run_):
        action.add_argument("--master", help="Spark master (default: the file's)")
    for action in (init, check, run_, status):
        action.add_argument("--json", action="store_true", help="one JSON object per line")
    when = run_.add_mutually_exclusive_group()
    when.add_argument(
        "--once", action="store_true", help="end after the messages that exist (the default)"
    )
    when.add_argument("--every", metavar="10s", help="run continuously, a batch per interval")
    return made
