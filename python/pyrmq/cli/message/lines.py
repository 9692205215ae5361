"""A message as one line: by a template, or as the JSON that `pyrmq send --from-json` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq._names import Property
from pyrmq.cli.times import shown
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyrmq.message import ReceivedMessage

# Properties that a sender sets by other means, or that belong to one sending only.
_SYSTEM = frozenset(
    {
        Property.KEYS,
        Property.TAGS,
        Property.UNIQ_KEY,
        Property.CLUSTER,
        Property.MSG_REGION,
        Property.TRACE_ON,
        Property.WAIT,
        Property.DELAY,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.RETRY_TOPIC,
        Property.ORIGIN_MESSAGE_ID,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.CONSUME_START_TIME,
        Property.PGROUP,
        Property.TRAN_MSG,
        Property.BORN_TIMESTAMP,
        Property.TIMER_DELIVER_MS,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_OUT_MS,
        Property.SHARDINGKEY,
    }
)


def body_text(message: ReceivedMessage) -> str:
    """The body as text; bytes that are not UTF-8 are escaped."""
    return bytes(message.body).decode("utf-8", "backslashreplace")


def as_object(message: ReceivedMessage) -> dict[str, object]:
    """The message for `--json`. A body that is not text is also in `body_base64`."""
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
        ConfigError: the line is not such an object, or a member has another type.
    """
    import binascii
    import json

    try:
        tree = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(_no_line(line)) from error
    if not isinstance(tree, dict) or not {"body", "body_base64"} & tree.keys():
        raise ConfigError(_no_line(line))
    try:
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ConfigError("it has half of a surrogate pair, which is not text") from error
    for name in ("body", "body_base64", "tags"):
        if not isinstance(tree.get(name), str | None):
            raise ConfigError(f"`{name}` must be a string, not {json.dumps(tree[name])[:60]}")
    keys = tree.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"`keys` must be a list of strings, not {json.dumps(keys)[:60]}")
    properties: Mapping[str, str] = tree.get("properties") or {}
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise ConfigError(
            f"`properties` must be an object of strings, not {json.dumps(properties)[:60]}"
        )
    body = (tree.get("body") or "").encode()
    if tree.get("body_base64") is not None:
        try:
            body = binascii.a2b_base64(tree["body_base64"], strict_mode=True)
        except ValueError as error:
            raise ConfigError(f"`body_base64` is not base64: {error}") from error
    kept = {name: text for name, text in properties.items() if name not in _SYSTEM}
    return body, {
        "keys": keys or None,
        "tags": tree.get("tags"),
        "properties": kept or None,
        "sharding_key": properties.get(Property.SHARDINGKEY),
    }


def _no_line(line: bytes) -> str:
    start = line[:60].decode("utf-8", "backslashreplace")
    return f"`{start}` is not a line of `pyrmq tail --json`: it must be an object with `body`"


def by_template(template: str, message: ReceivedMessage) -> str:
    """Format the message by a template such as `{queue}:{offset} {body}`.

    Raises:
        ConfigError: the template names an unknown field, or cannot be read.
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
