"""Files of messages: Parquet, Arrow, CSV and JSON lines, written and read in pieces of some MiB.

CSV and JSON lines are text. A body that is not UTF-8 is base64 in ``bodyBase64``, not in ``body``,
and properties are a JSON object. An empty cell of a CSV file is a missing value.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

__all__ = ["FORMATS", "opened", "writer"]

FORMATS = (".parquet", ".arrow", ".csv", ".jsonl")
_BASE64 = "bodyBase64"
_ROWS = 10_000
_BYTES = 8 << 20


@contextmanager
def writer(file: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    """Open a file to write batches of messages to."""
    if kind == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as parquet:
            yield parquet.write_batch
    elif kind == ".arrow":
        import pyarrow as pa

        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as stream:
            yield stream.write_batch
    elif kind == ".csv":
        with file.open("w", newline="", encoding="utf-8") as text:
            names = list(schema.names)
            if "body" in names:
                names.insert(names.index("body") + 1, _BASE64)
            table = csv.DictWriter(text, names)
            table.writeheader()
            yield lambda batch: table.writerows(
                {name: _cell(value) for name, value in _text_row(row).items()}
                for row in batch.to_pylist()
            )
    else:
        with file.open("w", encoding="utf-8") as text:
            yield lambda batch: text.writelines(
                json.dumps(_text_row(row), ensure_ascii=False, default=str) + "\n"
                for row in batch.to_pylist()
            )


def _text_row(row: dict[str, Any]) -> dict[str, Any]:
    shown = dict(row)
    if row.get("properties") is not None:
        shown["properties"] = dict(row["properties"])
    body = shown.pop("body", None)
    if body is not None:
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown[_BASE64] = base64.b64encode(body).decode()
    return shown


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def opened(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open a file of messages: its columns, and its rows in batches of some MiB.

    Raises:
        ConfigError: it does not have the format of its suffix, or a row is not a message.
    """
    import pyarrow as pa

    try:
        if file.suffix in {".parquet", ".arrow"}:
            schema, batches = (_parquet if file.suffix == ".parquet" else _arrow)(file)
            return schema, _whole(file, batches)
        rows = _csv_rows(file) if file.suffix == ".csv" else _json_rows(file)
    except pa.ArrowException as error:
        raise ConfigError(f"`{file}` is not a {file.suffix} file: {error}") from error
    pairs = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        [("body", pa.binary()), ("tags", pa.string()), ("keys", pa.string()), ("properties", pairs)]
    )
    return schema, _gathered(file, rows, schema)


def _parquet(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file)
    groups = [parquet.metadata.row_group(at) for at in range(parquet.metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    return parquet.schema_arrow, parquet.iter_batches(_fitting(parquet.metadata.num_rows, size))


def _arrow(file: Path) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    return reader.schema, (reader.get_batch(at) for at in range(reader.num_record_batches))


def _fitting(rows: int, size: int) -> int:
    return max(1, min(_ROWS, rows * _BYTES // max(size, 1)))


def _whole(file: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut batches to some MiB each."""
    import pyarrow as pa

    try:
        for batch in batches:
            step = _fitting(batch.num_rows, batch.nbytes)
            for first in range(0, batch.num_rows, step):
                yield batch.slice(first, step)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"`{file}` is damaged: {error}") from error


def _gathered(
    file: Path, rows: Iterable[tuple[int, dict[str, Any]]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    gathered: list[dict[str, Any]] = []
    size = 0
    try:
        for line, row in rows:
            message = _message(row, f"{file}:{line}")
            gathered.append(message)
            size += len(message["body"])
            if len(gathered) == _ROWS or size >= _BYTES:
                yield pa.RecordBatch.from_pylist(gathered, schema)
                gathered, size = [], 0
    except UnicodeDecodeError as error:
        raise ConfigError(f"`{file}` is not UTF-8: {error}") from error
    yield pa.RecordBatch.from_pylist(gathered, schema)


def _json_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{file}:{number}: not JSON: {error}") from error
            if not isinstance(row, dict) or not {"body", _BASE64} & row.keys():
                raise ConfigError(
                    f"{file}:{number}: expected a JSON object with body or bodyBase64"
                )
            yield number, row


def _csv_rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with file.open(newline="", encoding="utf-8-sig") as text:
        before = csv.field_size_limit(1 << 30)
        try:
            yield from _csv_cells(file, csv.DictReader(text, strict=True))
        except csv.Error as error:
            raise ConfigError(f"`{file}` is not CSV: {error}") from error
        finally:
            csv.field_size_limit(before)


def _csv_cells(file: Path, rows: csv.DictReader[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    names = rows.fieldnames or []
    if not {"body", _BASE64} & {*names}:
        raise ConfigError(f"{file}:1: no column body: there are {', '.join(names) or 'none'}")
    for cells in rows:
        where = f"{file}:{rows.line_num}"
        if None in cells or None in cells.values():
            raise ConfigError(f"{where}: expected {len(names)} cells, as in the first line")
        row: dict[str, Any] = {name: text or None for name, text in cells.items()}
        if row.get(_BASE64) is None:
            row.pop(_BASE64, None)
            row["body"] = row.get("body") or ""
        if row.get("properties") is not None:
            try:
                row["properties"] = json.loads(row["properties"])
            except ValueError as error:
                raise ConfigError(f"{where}: properties: not a JSON object: {error}") from error
        yield rows.line_num, row


def _message(row: dict[str, Any], where: str) -> dict[str, Any]:
    for name in ("tags", "keys"):
        if not isinstance(row.get(name), str | None):
            raise ConfigError(f"{where}: {name}: expected a string, found: {row[name]!r}")
    properties = row.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(text, str) for text in properties.values())
    ):
        raise ConfigError(f"{where}: properties: expected an object of strings: {properties!r:.80}")
    return {
        "body": _body(row, where),
        "tags": row.get("tags"),
        "keys": row.get("keys"),
        "properties": None if properties is None else list(properties.items()),
    }


def _body(row: dict[str, Any], where: str) -> bytes:
    name = _BASE64 if row.get(_BASE64) is not None else "body"
    text = row.get(name)
    if not isinstance(text, str):
        raise ConfigError(f"{where}: {name}: expected a string, found: {text!r:.80}")
    if name == "body":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{where}: bodyBase64: {error}: {text!r:.80}") from error
