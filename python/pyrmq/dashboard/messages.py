"""Messages for the page: found, read from the ends of queues, and written as trees for JSON."""

from __future__ import annotations

from base64 import b64encode
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyrmq._admin.messages import place_of, search
from pyrmq._names import TOOLS_GROUP, Property
from pyrmq.consumer import PullConsumer
from pyrmq.errors import ConfigError, TopicNotFound

if TYPE_CHECKING:
    from pyrmq.admin import Admin
    from pyrmq.message import ReceivedMessage

_TEXT_BYTES = 64 * 1024
_BINARY_BYTES = 4 * 1024
_PREVIEW = 160
_READ_SECONDS = 3.0


class MessageReader:
    """Reads stored messages; commits nothing, and takes no messages from consumers."""

    def __init__(self, admin: Admin, name_server: str) -> None:
        self._admin = admin
        self._name_server = name_server

    def message(self, message_id: str, topic: str | None) -> ReceivedMessage:
        """Find a message by its id.

        Raises:
            ConfigError: The id names a server that is not a broker of this cluster.
            BrokerError: No broker has it.
        """
        if topic is not None:
            for message in search(self._admin, topic, message_id, 1, unique=True):
                return message
        place = place_of(message_id)
        known = {
            address
            for brokers in self._admin.cluster().values()
            for one in brokers
            for address in one.addresses.values()
        }
        # A forged id must not make this process connect to an arbitrary address.
        if place is None or place[0] not in known:
            raise ConfigError(
                f"no broker has the message `{message_id}`"
                + (f" of the topic `{topic}`" if topic else ". Fix: give its topic as well")
            )
        return self._admin.message(message_id)

    def by_key(self, topic: str, key: str, most: int) -> list[dict[str, Any]]:
        """The messages of a topic with a key, newest first."""
        found = self._admin.query_messages(topic, key, max_messages=most)
        return [row_of(message) for message in reversed(found[-most:])]

    def newest(self, topic: str, most: int) -> list[dict[str, Any]]:
        """The newest messages of a topic, the newest first."""
        with PullConsumer(
            name_server=self._name_server, group=TOOLS_GROUP, auto_commit=None
        ) as consumer:
            try:
                queues = consumer.queues(topic)
            except TopicNotFound:
                return []
            ends = {queue: consumer.bounds(queue) for queue in queues}
            starts = {
                queue: max(first, end - most) for queue, (first, end) in ends.items() if end > first
            }
            if not starts:
                return []
            consumer.assign(starts)
            found: list[ReceivedMessage] = []
            until = monotonic() + _READ_SECONDS
            while monotonic() < until and any(
                consumer.position(queue) < ends[queue][1] for queue in starts
            ):
                found += consumer.poll(most * len(starts), 0.2)
        found.sort(key=lambda message: message.store_timestamp, reverse=True)
        return [row_of(message) for message in found[:most]]


def row_of(message: ReceivedMessage) -> dict[str, Any]:
    """A message for a table: everything but its body, and the beginning of that."""
    text = bytes(message.body[: 4 * _PREVIEW]).decode("utf-8", "replace")
    return {
        "topic": message.topic,
        "broker": message.broker,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.message_id,
        "offset_id": message.offset_message_id,
        "keys": list(message.keys),
        "tags": message.tags,
        "stored_ms": message.store_timestamp,
        "retries": message.reconsume_times,
        "size": len(message.body),
        "origin": message.properties.get(Property.RETRY_TOPIC),
        "preview": text[:_PREVIEW],
    }


def shown(message: ReceivedMessage) -> dict[str, Any]:
    """All of a message; of a long body, the beginning."""
    body = bytes(message.body)
    tree = row_of(message) | {
        "born_ms": message.born_timestamp,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "properties": dict(message.properties),
    }
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        tree["binary"] = b64encode(body[:_BINARY_BYTES]).decode("ascii")
        tree["cut"] = len(body) > _BINARY_BYTES
        return tree
    tree["text"] = text[:_TEXT_BYTES]
    tree["cut"] = len(text) > _TEXT_BYTES
    return tree
