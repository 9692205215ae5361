"""A message as one line: by a template, or as the JSON that `pyrmq send --from-json` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq.cli.times import shown
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq.message import ReceivedMessage

# Properties that a sender gives by other means, or that belong to one sending only.
_SYSTEM = frozenset(
    {
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "WAIT",
        "DELAY",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "REAL_TOPIC",
        "REAL_QID",
        "RETRY_TOPIC",
        "ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
        "CONSUME_START_TIME",
        "PGROUP",
        "TRAN_MSG",
        "BORN_TIMESTAMP",
        "TIMER_DELIVER_MS",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_OUT_MS",
        "__SHARDINGKEY",
    }
)


def body_text(message: ReceivedMessage) -> str:
    """The body as text; bytes that are no UTF-8 are escaped."""
    return bytes(message.body).decode("utf-8", "backslashreplace")


def as_object(message: ReceivedMessage) -> dict[str, object]:
    """The message for `--json`. A body that is no text stands in `body_base64` as well."""
    tree: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "keys": list(message.keys),
        "tags": message.tags,
        "properties": dict(message.properties),
        "message_id": message.message_id,
        "stored_ms": message.store_timestamp,
        "body": body_text(message),
    }
    try:
        bytes(message.body).decode("utf-8")
    except UnicodeDecodeError:
        from base64 import b64encode

        tree["body_base64"] = b64encode(bytes(message.body)).decode("ascii")
    return tree


def of_object(line: bytes) -> tuple[bytes, dict[str, Any]]:
    """The body and the arguments for a producer, of a line that `pyrmq tail --json` printed.

    Raises:
        ConfigError: the line is no such object.
    """
    import json

    try:
        tree = json.loads(line)
        properties: Mapping[str, str] = tree.get("properties") or {}
        if "body_base64" in tree:
            from base64 import b64decode

            body = b64decode(tree["body_base64"], validate=True)
        else:
            body = str(tree["body"]).encode()
    except (ValueError, KeyError, AttributeError) as error:
        shown_line = line[:60].decode("utf-8", "backslashreplace")
        raise ConfigError(
            f"`{shown_line}` is no line of `pyrmq tail --json`: it must be an object with `body`"
        ) from error
    kept = {name: text for name, text in properties.items() if name not in _SYSTEM}
    return body, {
        "keys": tree.get("keys") or None,
        "tags": tree.get("tags"),
        "properties": kept or None,
        "sharding_key": properties.get("__SHARDINGKEY"),
    }


def by_template(template: str, message: ReceivedMessage) -> str:
    """The message by a template such as `{queue}:{offset} {body}`.

    Raises:
        ConfigError: the template names something else, or cannot be read.
    """
    values = {
        "topic": message.topic,
        "broker": message.broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "key": next(iter(message.keys), ""),
        "keys": " ".join(message.keys),
        "tags": message.tags or "",
        "id": message.message_id,
        "time": shown(message.store_timestamp),
        "properties": dict(message.properties),
        "body": body_text(message),
    }
    try:
        return template.format_map(values)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        names = ", ".join(values)
        raise ConfigError(f"`--format` {template!r}: {error}; there are: {names}") from error
