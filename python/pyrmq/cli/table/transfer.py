"""`pyrmq export` and `pyrmq import`: topics to files and back (files.py writes and reads them)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.cli.output import counted, show_progress
from pyrmq.cli.table.files import FORMATS, opened, writer
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import pyarrow as pa

_MESSAGE_COLUMNS = "body,tags,keys,properties"


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq export` or `pyrmq import` with these arguments."""
    given = (_export_parser() if verb == "export" else _import_parser()).parse_args(words)
    _need_pyarrow()
    file = Path(given.file)
    if file.suffix not in FORMATS:
        raise ConfigError(f"`{file}`: its name must end in {', '.join(FORMATS)}")
    count = _export(given, file) if verb == "export" else _import(given, file)
    what = "exported" if verb == "export" else "sent"
    if given.json:
        print(json.dumps({"topic": given.topic, "file": str(file), "messages": count}))
    else:
        print(f"{what} {count} messages")
    return 0


def _need_pyarrow() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise ConfigError("pyarrow is missing: pip install pyrmq-rocketmq[arrow]")


def _export(given: argparse.Namespace, file: Path) -> int:
    if file.is_dir():
        raise ConfigError(f"`{file}` is a directory")
    if not file.parent.is_dir():
        raise ConfigError(f"`{file}`: there is no directory {file.parent}")
    if file.exists() and not given.overwrite:
        raise ConfigError(f"`{file}` exists: name another file, or use --overwrite")
    reader = _source(given)
    # The file gets its name when it is complete, so half a file is never taken for a topic.
    part = file.with_name(f".{file.name}.part")
    count = 0
    try:
        with writer(part, file.suffix, reader.schema) as write:
            for batch in reader:
                write(batch)
                count += batch.num_rows
                show_progress(counted(count, "message"))
        part.replace(file)
    finally:
        show_progress("")
        part.unlink(missing_ok=True)
    return count


def _source(given: argparse.Namespace) -> pa.RecordBatchReader:
    """Open the topic or, with a slash in its name, the directory of log files."""
    from pyrmq import arrow

    wanted: dict[str, Any] = {
        "since": given.since,
        "until": given.until,
        "columns": given.columns.split(",") if given.columns else None,
        "tags": given.tags,
        "limit": given.limit,
    }
    if "/" not in given.topic:
        if given.topics or given.skip_corrupt:
            raise ConfigError(
                f"`--topics` and `--skip-corrupt` are for a directory of log files, and"
                f" {given.topic} is a topic; a directory has a slash in its name (./{given.topic})"
            )
        brokers = given.brokers.split(",") if given.brokers else ()
        return arrow.scan(given.topic, name_server=given.name_server, brokers=brokers, **wanted)
    if given.brokers:
        raise ConfigError("`--brokers` is for a topic: a directory is read without brokers")
    return arrow.scan_log(
        given.topic,
        given.topics.split(",") if given.topics else None,
        on_corrupt="skip" if given.skip_corrupt else "fail",
        **wanted,
    )


def _import(given: argparse.Namespace, file: Path) -> int:
    import pyarrow as pa

    from pyrmq import arrow

    columns = given.columns.split(",")
    schema, batches = opened(file)
    there = [name for name in schema.names if name in columns]
    lacking = [name for name in columns if name not in there]
    if lacking and given.columns != _MESSAGE_COLUMNS:
        raise ConfigError(
            f"`{file}` has no column {', '.join(lacking)}: there are {', '.join(schema.names)}"
        )

    def chosen() -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in batches:
            yield _own_properties(batch.select(there))
            count += batch.num_rows
            show_progress(counted(count, "message"))

    picked = pa.schema([schema.field(name) for name in there])
    reader = pa.RecordBatchReader.from_batches(picked, chosen())
    try:
        return arrow.send(reader, given.topic, name_server=given.name_server)
    finally:
        show_progress("")


def _own_properties(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out the properties that RocketMQ gives a message itself."""
    if "properties" not in batch.schema.names:
        return batch
    import pyarrow as pa

    from pyrmq._core import RESERVED_PROPERTIES

    at = batch.schema.get_field_index("properties")
    reserved = frozenset(RESERVED_PROPERTIES)
    own = [
        None if pairs is None else [pair for pair in pairs if pair[0] not in reserved]
        for pairs in batch.column(at).to_pylist()
    ]
    return batch.set_column(at, batch.schema.field(at), pa.array(own, batch.schema.field(at).type))


def _export_parser() -> argparse.ArgumentParser:
    made = parser(
        "export",
        "Write a topic, or a directory of log files, to a file; its suffix chooses the format.",
    )
    made.add_argument(
        "topic", help="topic, or with a slash a broker's store directory, read without the broker"
    )
    made.add_argument("file", help=f"file that ends in {', '.join(FORMATS)}")
    made.add_argument(
        "--since",
        help="only messages stored since: 1h, 30m, 7d, ISO 8601 with a zone, or milliseconds",
    )
    made.add_argument("--until", help="only messages stored before; same forms")
    made.add_argument("--tags", default="*", help="only messages with these tags: 'A || B'")
    made.add_argument("--columns", help="comma-separated columns (default: those of docs/spark.md)")
    made.add_argument(
        "--limit", type=int, default=0, help="maximum number of messages (default: all)"
    )
    made.add_argument("--topics", help="for a directory: comma-separated topics (default: all)")
    made.add_argument(
        "--skip-corrupt",
        action="store_true",
        help="for a directory: continue at the next valid record after damage",
    )
    made.add_argument("--brokers", help="comma-separated brokers that must answer")
    made.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_name_server(made)
    return made


def _import_parser() -> argparse.ArgumentParser:
    made = parser("import", "Send the rows of a file that `pyrmq export` or another tool wrote.")
    made.add_argument("file", help=f"file that ends in {', '.join(FORMATS)}")
    made.add_argument("topic", help="topic")
    made.add_argument(
        "--columns",
        default=_MESSAGE_COLUMNS,
        help=f"comma-separated columns to send (default: those of {_MESSAGE_COLUMNS} that exist)",
    )
    add_name_server(made)
    return made
