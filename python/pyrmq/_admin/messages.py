"""Stored messages: found by id or key, tracked to their consumers, dead letters sent again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._admin.requests import Requester, body_of, queue_of
from pyrmq._admin.traces import MessageTrace, traces_of
from pyrmq._names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    TOOLS_GROUP,
    TRACE_TOPIC,
    Property,
)
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import BrokerError, ConfigError, ProtocolError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.message import ReceivedMessage

__all__ = ["MessageAdmin", "MessageTrace", "MessageTrack"]

_OFFSET_ID_LENGTHS = (32, 56)
_TRACES = 64
# Properties that a resent message must not keep: it is neither a retry nor delayed.
_NOT_AGAIN = frozenset(
    {
        Property.DELAY,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
    }
)
_MAX_TRIES = 16
"""Apache's default. Its brokers up to 4.9.0 fail without one."""
_PAIR, _END = "\x01", "\x02"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """The state of a message in one consumer group.

    Attributes:
        group: Consumer group.
        state: ``CONSUMED``, ``NOT_CONSUME_YET``, ``NOT_ONLINE`` (no member is connected),
            ``CONSUME_BROADCASTING``, or ``CONSUMED_BUT_FILTERED`` (its tag is not subscribed to).
    """

    group: str
    state: str


class MessageAdmin:
    """The methods of `Admin` about stored messages."""

    def message(self: Requester, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Find one message.

        Args:
            message_id: Its unique id, which needs ``topic``, or the id that names its broker and
                position (``offset_message_id``).
            topic: Topic.

        Raises:
            BrokerError: No broker has it.
            ConfigError: A unique id without a topic.

        Example:
            >>> admin.message("7F0000010001...", "orders").body  # doctest: +SKIP
            b'two coffees'
        """
        if topic is not None:
            found = search(self, topic, message_id, 1, unique=True)
            for message in found:
                return message
        place = place_of(message_id)
        if place is None:
            if topic is None:
                raise ConfigError(f"`{message_id}` names no broker: give the topic as well")
            raise BrokerError(
                f"no broker has the message `{message_id}` of the topic `{topic}`",
                code=ResponseCode.QUERY_NOT_FOUND,
            )
        address, offset = place
        answer = self._request(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
        names = self._master_names()
        messages = _messages(answer.body or b"", names.get(address, address))
        return next(messages)

    def query_messages(
        self: Requester,
        topic: str,
        key: str,
        *,
        max_messages: int = 64,
        begin_ms: int = 0,
        end_ms: int | None = None,
    ) -> list[ReceivedMessage]:
        """Find the messages with a key, oldest first.

        Args:
            topic: Topic.
            key: Key.
            max_messages: Maximum number of messages per broker.
            begin_ms: Only messages stored since, ms since 1970.
            end_ms: Only messages stored until, ms since 1970. Default: now.

        Raises:
            TopicNotFound: The name servers do not know the topic.

        Example:
            >>> admin.query_messages("orders", "order-42")  # doctest: +SKIP
            [<ReceivedMessage topic='orders' ...>]
        """
        found = search(self, topic, key, max_messages, begin_ms=begin_ms, end_ms=end_ms)
        return sorted(found, key=lambda message: message.store_timestamp)

    def track_message(self: Requester, message: ReceivedMessage) -> list[MessageTrack]:
        """Return which groups have consumed a message, by their committed offsets.

        Args:
            message: A message of :meth:`message` or :meth:`query_messages`.

        Raises:
            TopicNotFound: The name servers do not know its topic.

        Example:
            >>> admin.track_message(message)  # doctest: +SKIP
            [MessageTrack(group='kitchen', state='CONSUMED')]
        """
        tracks: dict[str, MessageTrack] = {}
        names = self._master_names()
        for address in self._masters_of(message.topic):
            if names.get(address) != message.broker:
                continue
            answer = self._request(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": message.topic}
            )
            for group in body_of(answer).get("groupList") or []:
                tracks[group] = MessageTrack(group, _state(self, address, group, message))
        return [tracks[group] for group in sorted(tracks)]

    def trace_message(
        self: Requester, message_id: str, *, trace_topic: str = TRACE_TOPIC
    ) -> list[MessageTrace]:
        """Read what clients with ``trace=True`` wrote about a message, oldest first.

        Args:
            message_id: The message's unique id.
            trace_topic: Where the clients wrote it.

        Returns:
            Its steps; empty if no client traced it, or if the traces were deleted.

        Raises:
            BrokerError: A broker refused; the text says why.

        Example:
            >>> admin.trace_message("7F0000010001...")  # doctest: +SKIP
            [MessageTrace(kind='Pub', ...), MessageTrace(kind='SubBefore', ...)]
        """
        try:
            found = list(search(self, trace_topic, message_id, _TRACES))
        except TopicNotFound:
            # The first trace creates the topic.
            return []
        return traces_of(found, message_id)

    def resend_dead_letter(self: Requester, group: str, message: ReceivedMessage) -> None:
        """Send a dead letter to its group again, with all retries.

        A copy goes to the group's retry topic on the same broker, so that no other group gets it.
        The dead letter stays in its topic.

        Args:
            group: Consumer group.
            message: A message of the group's dead-letter topic.

        Raises:
            ConfigError: The message is not a dead letter of the group.
            BrokerError: The broker refused; the text says why.

        Example:
            >>> admin.resend_dead_letter("kitchen", message)  # doctest: +SKIP
        """
        if message.topic != DLQ_PREFIX + group:
            raise ConfigError(
                f"the message is of `{message.topic}`: not a dead letter of `{group}`"
            )
        address = next(
            (address for address, name in self._master_names().items() if name == message.broker),
            None,
        )
        if address is None:
            raise BrokerError(f"the broker `{message.broker}` is not registered")
        pairs = message.properties.items()
        kept = [f"{name}{_PAIR}{text}{_END}" for name, text in pairs if name not in _NOT_AGAIN]
        fields: dict[str, str | int | bool | None] = {
            "producerGroup": TOOLS_GROUP,
            "topic": RETRY_PREFIX + group,
            "defaultTopic": TEMPLATE_TOPIC,
            "defaultTopicQueueNums": 1,
            "queueId": 0,
            # The body of a received message is no longer compressed.
            "sysFlag": 0,
            "bornTimestamp": message.born_timestamp,
            "flag": message.flag,
            "properties": "".join(kept),
            "reconsumeTimes": 0,
            "maxReconsumeTimes": _MAX_TRIES,
            "unitMode": False,
            "batch": False,
        }
        self._request(address, RequestCode.SEND_MESSAGE, fields, bytes(message.body))


def search(
    admin: Requester,
    topic: str,
    key: str,
    most: int,
    *,
    unique: bool = False,
    begin_ms: int = 0,
    end_ms: int | None = None,
) -> Iterator[ReceivedMessage]:
    """Search each broker's index by key, or with `unique` by unique id."""
    fields: dict[str, str | int | bool | None] = {
        "topic": topic,
        "key": key,
        "maxNum": most,
        "beginTimestamp": begin_ms,
        # A day ahead: the clocks of brokers may differ from this one.
        "endTimestamp": round(time.time() * 1000) + 86_400_000 if end_ms is None else end_ms,
        "_UNIQUE_KEY_QUERY": "true" if unique else None,
    }
    names = admin._master_names()
    for address in admin._masters_of(topic):
        try:
            answer = admin._request(address, RequestCode.QUERY_MESSAGE, fields)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            continue
        for message in _messages(answer.body or b"", names.get(address, address)):
            # Hashes of keys collide.
            if unique or key in message.keys:
                yield message


def _messages(records: bytes, broker: str) -> Iterator[ReceivedMessage]:
    while records:
        size = int.from_bytes(records[:4], "big")
        if not 4 < size <= len(records):
            raise ProtocolError(f"a record of {size} bytes in {len(records)} bytes of an answer")
        yield _core.RequestReply.message_of(records[:size], broker)
        records = records[size:]


def place_of(message_id: str) -> tuple[str, int] | None:
    """The address and log position in an id of Apache's `MessageDecoder.createMessageId`."""
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        return None
    if len(message_id) not in _OFFSET_ID_LENGTHS:
        return None
    import ipaddress

    host = ipaddress.ip_address(data[:-12])
    port = int.from_bytes(data[-12:-8], "big")
    if not 0 < port < 1 << 16:
        return None
    name = f"[{host}]" if host.version == 6 else str(host)
    return f"{name}:{port}", int.from_bytes(data[-8:], "big")


def _state(admin: Requester, address: str, group: str, message: ReceivedMessage) -> str:
    request = admin._request
    try:
        answer = request(
            address, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
        )
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return "NOT_ONLINE"
    members = body_of(answer)
    if members.get("messageModel") == "BROADCASTING":
        return "CONSUME_BROADCASTING"
    fields = {"consumerGroup": group, "topic": message.topic}
    stats = body_of(request(address, RequestCode.GET_CONSUME_STATS, fields))
    for name, offsets in (stats.get("offsetTable") or {}).items():
        queue = queue_of(name)
        if queue.queue_id != message.queue_id or queue.topic != message.topic:
            continue
        if int(offsets.get("consumerOffset", 0)) <= message.queue_offset:
            return "NOT_CONSUME_YET"
        data = (members.get("subscriptionTable") or {}).get(message.topic) or {}
        tags = data.get("tagsSet") or []
        return "CONSUMED_BUT_FILTERED" if tags and message.tags not in tags else "CONSUMED"
    return "NOT_CONSUME_YET"
