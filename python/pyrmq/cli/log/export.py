"""`pyrmq log export`: messages of a store directory, without a broker."""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._names import HALF_TOPIC
from pyrmq.cli.log.walk import Damage, walk
from pyrmq.cli.output import counted, print_json
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyrmq.cli.log.directory import Segment, StoreDirectory
    from pyrmq.cli.log.walk import Row
    from pyrmq.message import ReceivedMessage

_BATCH = 10_000
_TRANSACTION_BITS = 0x0C
_TRANSACTION = {0x04: "prepared", 0x08: "committed", 0x0C: "rolled back"}


def run(directory: StoreDirectory, given: argparse.Namespace) -> int:
    """Write the selected messages."""
    messages = _messages(directory, given)
    if given.arrow:
        count = _arrow(messages, given.arrow)
        if given.json:
            print_json({"file": given.arrow, "messages": count})
        else:
            print(f"{counted(count, 'message')} in {given.arrow}")
        return 0
    for tree, body in messages:
        print_json(tree | _text(body))
    return 0


def moment(option: str, text: str | None) -> int | None:
    """Read a time in ISO 8601, by default in UTC, as milliseconds since 1970.

    Raises:
        ConfigError: it is not a time.
    """
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"`{option}` is {text!r}: it must be a time such as 2026-01-31T12:00, or ms since 1970"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _messages(
    directory: StoreDirectory, given: argparse.Namespace
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The requested fields of each message, and its body."""
    deleted = directory.deleted()
    since, until = moment("--from", given.since), moment("--to", given.until)
    left = given.count
    for segment in directory.segments():
        with ExitStack() as stack:
            descriptor = os.open(segment.path, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            for row in _rows(segment):
                if given.topic not in (None, row.topic):
                    continue
                if (since is not None and row.stored_ms < since) or (
                    until is not None and row.stored_ms >= until
                ):
                    continue
                data = os.pread(descriptor, row.size, row.position - segment.base)
                message = _core.RequestReply.message_of(data, "")
                if given.key is not None and given.key not in message.keys:
                    continue
                if left == 0:
                    return
                left = left if left is None else left - 1
                is_deleted = row.position < deleted.get(row.topic, 0)
                yield _tree(message, row, is_deleted=is_deleted), bytes(message.body)


def _rows(segment: Segment) -> Iterator[Row]:
    for piece in walk([segment], check=True):
        if not isinstance(piece, Damage):
            yield from piece


def _tree(message: ReceivedMessage, row: Row, *, is_deleted: bool) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "position": message.commit_log_offset,
        "stored_ms": message.store_timestamp,
        "born_ms": message.born_timestamp,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": dict(message.properties),
        "message_id": message.message_id,
        "transaction": _transaction(row),
        "deleted": is_deleted,
    }


def _transaction(row: Row) -> str | None:
    # A broker keeps half messages in a separate topic, without the flag.
    if row.topic == HALF_TOPIC:
        return "prepared"
    return _TRANSACTION.get(row.sys_flag & _TRANSACTION_BITS)


def _text(body: bytes) -> dict[str, str]:
    """The body for JSON: as text, or in base64 if it is not text."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


def _arrow(messages: Iterator[tuple[dict[str, Any], bytes]], path: str) -> int:
    try:
        arrow: Any = import_module("pyarrow")
    except ModuleNotFoundError:
        raise ConfigError("`--arrow` needs pyarrow: `pip install pyarrow`") from None
    schema = arrow.schema(
        [
            ("topic", arrow.string()),
            ("queue", arrow.int32()),
            ("offset", arrow.int64()),
            ("position", arrow.int64()),
            ("stored_ms", arrow.timestamp("ms", "UTC")),
            ("born_ms", arrow.timestamp("ms", "UTC")),
            ("keys", arrow.list_(arrow.string())),
            ("tags", arrow.string()),
            ("properties", arrow.map_(arrow.string(), arrow.string())),
            ("message_id", arrow.string()),
            ("transaction", arrow.string()),
            ("deleted", arrow.bool_()),
            ("body", arrow.binary()),
        ]
    )
    count = 0
    with arrow.OSFile(path, "wb") as file, arrow.ipc.new_file(file, schema) as out:
        batch: list[dict[str, Any]] = []
        for tree, body in messages:
            pairs = list(tree["properties"].items())
            batch.append(tree | {"properties": pairs, "body": body})
            count += 1
            if len(batch) == _BATCH:
                out.write_batch(arrow.RecordBatch.from_pylist(batch, schema))
                batch = []
        if batch:
            out.write_batch(arrow.RecordBatch.from_pylist(batch, schema))
    return count
