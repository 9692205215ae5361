"""`pyrmq export` and `pyrmq import`: topics to files and back."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import add_name_server, parser
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_FORMATS = (".parquet", ".arrow", ".csv", ".jsonl")
_MESSAGE_COLUMNS = "body,tags,keys,properties"


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq export` or `pyrmq import` with these arguments."""
    given = (_export_parser() if verb == "export" else _import_parser()).parse_args(words)
    _need_pyarrow()
    file = Path(given.file)
    if file.suffix not in _FORMATS:
        raise ConfigError(f"`{file}`: its name must end in {', '.join(_FORMATS)}")
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
    reader = _source(given)
    # The file gets its name when it is whole: nobody takes half of it for a topic.
    part = file.with_name(f".{file.name}.part")
    count = 0
    try:
        with _writer(part, file.suffix, reader.schema) as write:
            for batch in reader:
                write(batch)
                count += batch.num_rows
                _progress(count)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    _progress(None)
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


@contextmanager
def _writer(file: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    if kind == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as parquet:
            yield parquet.write_batch
    elif kind == ".arrow":
        import pyarrow as pa

        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as stream:
            yield stream.write_batch
    elif kind == ".csv":
        import csv

        with file.open("w", newline="", encoding="utf-8") as text:
            table = csv.writer(text)
            table.writerow(schema.names)
            yield lambda batch: table.writerows(
                [_cell(value) for value in row.values()] for row in batch.to_pylist()
            )
    else:
        with file.open("w", encoding="utf-8") as text:
            yield lambda batch: text.writelines(
                json.dumps(_json_row(row), ensure_ascii=False, default=str) + "\n"
                for row in batch.to_pylist()
            )


def _cell(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list):
        return json.dumps(dict(value), ensure_ascii=False)
    return value


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    shown = dict(row)
    if row.get("properties") is not None:
        shown["properties"] = dict(row["properties"])
    body = shown.pop("body", None)
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["bodyBase64"] = base64.b64encode(body).decode()
    return shown


def _import(given: argparse.Namespace, file: Path) -> int:
    import pyarrow as pa

    from pyrmq import arrow

    columns = given.columns.split(",")
    schema, batches = _open(file)
    there = [name for name in schema.names if name in columns]

    def chosen() -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in batches:
            yield _own_properties(batch.select(there))
            count += batch.num_rows
            _progress(count)

    picked = pa.schema([schema.field(name) for name in there])
    reader = pa.RecordBatchReader.from_batches(picked, chosen())
    sent = arrow.send(reader, given.topic, name_server=given.name_server)
    _progress(None)
    return sent


def _open(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa

    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(file)
        return parquet.schema_arrow, parquet.iter_batches(10_000)
    if file.suffix == ".arrow":
        reader = pa.ipc.open_file(pa.memory_map(str(file)))
        numbers = range(reader.num_record_batches)
        return reader.schema, (reader.get_batch(number) for number in numbers)
    if file.suffix == ".csv":
        from pyarrow import csv

        # Without a type, a column of numbers or of nothing would not be read as text. An empty cell
        # is a missing value: no message has empty tags.
        text = csv.ConvertOptions(
            column_types=dict.fromkeys(("tags", "keys"), pa.string()) | {"body": pa.string()},
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        )
        lines = csv.ParseOptions(newlines_in_values=True)
        table = csv.read_csv(file, parse_options=lines, convert_options=text)
        if "properties" in table.schema.names:
            table = table.drop_columns(["properties"])
        return table.schema, iter(table.to_batches(10_000))
    return _open_lines(file)


def _open_lines(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa

    pairs = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [("body", pa.binary()), ("tags", pa.string()), ("keys", pa.string()), ("properties", pairs)]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                rows.append(_row_of(line, f"{file}:{number}"))
                if len(rows) == 10_000:
                    yield pa.RecordBatch.from_pylist(rows, schema)
                    rows = []
        yield pa.RecordBatch.from_pylist(rows, schema)

    return schema, batches()


def _row_of(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    if not isinstance(row, dict) or not {"body", "bodyBase64"} & row.keys():
        raise ConfigError(f"{where}: a JSON object with body or bodyBase64 is wanted")
    body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
    properties = row.get("properties")
    return {
        "body": body,
        "tags": row.get("tags"),
        "keys": row.get("keys"),
        "properties": None if properties is None else list(properties.items()),
    }


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


def _progress(count: int | None) -> None:
    if sys.stderr.isatty():
        text = "\r\x1b[K" if count is None else f"\r{count} messages"
        print(text, end="", file=sys.stderr, flush=True)


def _export_parser() -> argparse.ArgumentParser:
    made = parser(
        "export", "Write a topic, or a directory of log files, to a file; its name says the format."
    )
    made.add_argument(
        "topic", help="topic; with a slash a broker's store directory, read without the broker"
    )
    made.add_argument("file", help=f"file that ends in {', '.join(_FORMATS)}")
    made.add_argument("--since", help="1h, 30m, 7d ago, ISO 8601 with a zone, or milliseconds")
    made.add_argument("--until", help="the same; messages stored before then")
    made.add_argument("--tags", default="*", help="only messages with these tags: 'A || B'")
    made.add_argument("--columns", help="comma list of columns (default: those of docs/spark.md)")
    made.add_argument("--limit", type=int, default=0, help="the most messages (default: all)")
    made.add_argument("--topics", help="of a directory: comma list of topics (default: all)")
    made.add_argument(
        "--skip-corrupt",
        action="store_true",
        help="of a directory: go on at the next good record where none can be read",
    )
    made.add_argument("--brokers", help="comma list of brokers that must be there")
    add_name_server(made)
    return made


def _import_parser() -> argparse.ArgumentParser:
    made = parser("import", "Send the rows of a file, which `pyrmq export` or another tool wrote.")
    made.add_argument("file", help=f"file that ends in {', '.join(_FORMATS)}")
    made.add_argument("topic", help="topic")
    made.add_argument(
        "--columns",
        default=_MESSAGE_COLUMNS,
        help=f"comma list of columns to send, where they are there (default: {_MESSAGE_COLUMNS})",
    )
    add_name_server(made)
    return made
