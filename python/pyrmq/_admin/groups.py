"""Consumer groups: their members, progress and offsets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pyrmq._admin.conflicts import conflicts_of, subscriptions_of
from pyrmq._admin.requests import Requester, body_of, on_each, queue_of
from pyrmq._admin.resets import reset_queue, reset_refused, resets_by_itself
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyrmq.message import QueueId

__all__ = ["GroupAdmin", "GroupDescription", "GroupLag", "GroupMember"]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A connected consumer of a group.

    Attributes:
        client_id: Its id.
        address: Its address, as a broker sees it.
        language: Its programming language.
        version: Its version of RocketMQ's protocol, as a number.
        subscriptions: The filter of each topic, from the consumer itself; None if it did not
            answer.
    """

    client_id: str
    address: str
    language: str
    version: int
    subscriptions: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group, from its brokers.

    Attributes:
        group: Consumer group.
        members: Its connected consumers, by client id.
        consume_type: ``CONSUME_PASSIVELY`` (listeners), ``CONSUME_ACTIVELY`` (pulls) or
            ``CONSUME_POP``; empty while no member is connected.
        message_model: ``CLUSTERING`` or ``BROADCASTING``; empty while no member is connected.
        subscriptions: The filter of each topic, from its members.
        config: The group's settings on the first broker that has it, by Apache's names.
        conflicts: Topics that members subscribe to differently: the client ids of each filter. None
            means members that do not subscribe to the topic. Such a group skips messages: a
            broker keeps the subscription that it got last.
    """

    group: str
    members: Sequence[GroupMember]
    consume_type: str
    message_model: str
    subscriptions: Mapping[str, str]
    config: Mapping[str, object]
    conflicts: Mapping[str, Mapping[str | None, Sequence[str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in a queue.

    Attributes:
        messages: Messages that it has not committed.
        in_flight: Of those, messages that it has pulled.
        seconds: Age of the next message that it will commit; 0 without lag.
    """

    messages: int
    in_flight: int
    seconds: float


class GroupAdmin:
    """The methods of `Admin` about consumer groups."""

    def consumer_groups(self: Requester) -> list[str]:
        """List the consumer groups that brokers have, sorted.

        Raises:
            RouteError: There is no broker.

        Example:
            >>> admin.consumer_groups()  # doctest: +SKIP
            ['TOOLS_CONSUMER', 'kitchen']
        """

        def names(address: str) -> set[str]:
            answer = self._request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            return set(body_of(answer).get("subscriptionGroupTable") or {})

        return sorted(set().union(*on_each(self, self._masters(None, None), names).values()))

    def require_group(self: Requester, group: str) -> None:
        """Refuse a group that no broker knows, such as a misspelt one.

        A broker knows a group of which it has settings or committed offsets.

        Raises:
            BrokerError: No broker knows it; the text suggests the closest name.
            RouteError: There is no broker.

        Example:
            >>> admin.require_group("kitchne")  # doctest: +SKIP
            Traceback (most recent call last):
            pyrmq.errors.BrokerError: no broker has the consumer group `kitchne`: did you mean ...
        """
        known = self.consumer_groups()
        # A group that was deleted with `keep_offsets` has only offsets.
        if group not in known and not self.consumer_progress(group):
            raise _unknown(group, known)

    def describe_group(self: Requester, group: str) -> GroupDescription:
        """Request a group's members, subscriptions and settings.

        Raises:
            BrokerError: No broker has the group, or one refused; the text says why.

        Example:
            >>> admin.describe_group("kitchen").members  # doctest: +SKIP
            [GroupMember(client_id='...', address='127.0.0.1:51234', language='PYTHON', ...)]
        """

        def request(address: str) -> tuple[Mapping[str, object], dict[str, Any]]:
            config = _config(self, address, group)
            try:
                fields = {"consumerGroup": group}
                answer = self._request(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                return config, {}
            return config, body_of(answer)

        config: Mapping[str, object] = {}
        members: dict[str, GroupMember] = {}
        subscriptions: dict[str, str] = {}
        consume_type = message_model = ""
        brokers: dict[str, str] = {}
        for address, (settings, body) in on_each(self, self._masters(None, None), request).items():
            config = config or settings
            consume_type = str(body.get("consumeType", consume_type))
            message_model = str(body.get("messageModel", message_model))
            for one in body.get("connectionSet") or []:
                brokers[one["clientId"]] = address
                members[one["clientId"]] = GroupMember(
                    one["clientId"], one["clientAddr"], one["language"], int(one["version"])
                )
            for topic, data in (body.get("subscriptionTable") or {}).items():
                subscriptions[topic] = str(data.get("subString", "*"))
        if not config and not members:
            raise _unknown(group, self.consumer_groups())
        if len(members) > 1:
            said = subscriptions_of(self, group, brokers)
            members = {
                client: replace(member, subscriptions=said[client])
                for client, member in members.items()
            }
        return GroupDescription(
            group,
            [members[client] for client in sorted(members)],
            consume_type,
            message_model,
            dict(sorted(subscriptions.items())),
            config,
            conflicts_of(members),
        )

    def consumer_lag(
        self: Requester, group: str, topic: str | None = None
    ) -> dict[QueueId, GroupLag]:
        """Request a group's lag, in messages and in seconds.

        Args:
            group: Consumer group.
            topic: Only this topic. Default: every topic that the group has committed offsets of.

        Raises:
            TopicNotFound: The name servers do not know ``topic``.
            BrokerError: No broker knows the group, or one refused; the text says why.

        Example:
            >>> admin.consumer_lag("kitchen")  # doctest: +SKIP
            {QueueId(topic='orders', broker='broker-a', queue_id=0): GroupLag(messages=3, ...)}
        """
        masters = self._masters(None, None) if topic is None else self._masters_of(topic)
        is_known = False

        def lags(address: str) -> dict[QueueId, GroupLag]:
            nonlocal is_known
            found: dict[QueueId, GroupLag] = {}
            fields = {"consumerGroup": group, "topic": topic}
            answer = self._request(address, RequestCode.GET_CONSUME_STATS, fields)
            rows = {
                queue_of(name): offsets
                for name, offsets in (body_of(answer).get("offsetTable") or {}).items()
            }
            behind = _delays(self, address, group, {queue.topic for queue in rows})
            for queue, offsets in rows.items():
                committed = max(0, int(offsets.get("consumerOffset", 0)))
                is_known = is_known or committed > 0 or topic is None
                messages = max(0, int(offsets.get("brokerOffset", 0)) - committed)
                in_flight = max(0, int(offsets.get("pullOffset", 0)) - committed)
                seconds = behind.get(queue, 0) / 1000 if messages else 0.0
                found[queue] = GroupLag(messages, min(in_flight, messages), max(0.0, seconds))
            return found

        each = on_each(self, masters, lags).values()
        found = dict(sorted((queue, lag) for part in each for queue, lag in part.items()))
        # For one topic, brokers answer with rows of zeros for a group that they do not know.
        if not is_known:
            self.require_group(group)
        return found

    def reset_offsets(
        self: Requester,
        group: str,
        topic: str,
        to: int | Literal["first", "last"] | datetime,
        *,
        queue: QueueId | None = None,
    ) -> dict[QueueId, int]:
        """Move a group to other offsets of a topic. Connected members follow at once.

        A broker with ``useServerSideResetOffset=false``, the default before 5.2, moves one queue
        only while no member is connected. Brokers before 5.1 do not have this option.

        Args:
            group: Consumer group.
            topic: Topic.
            to: ``"first"``, ``"last"``, a time at which messages were stored, or an offset; an
                offset needs ``queue``.
            queue: Only this queue. Default: every queue of the topic.

        Returns:
            The new offset of each queue.

        Raises:
            TopicNotFound: The name servers do not know the topic.
            NotSupported: Such a broker cannot move a single queue of connected members.
            BrokerError: A broker refused; the text says why, and which brokers moved the group.

        Example:
            >>> admin.reset_offsets("kitchen", "orders", "first")  # doctest: +SKIP
            {QueueId(topic='orders', broker='broker-a', queue_id=0): 0}
        """
        if isinstance(to, int) and queue is None:
            raise ConfigError("an offset needs `queue`: each queue has offsets of its own")
        fields: dict[str, str | int | bool | None] = {
            "topic": topic,
            "group": group,
            "timestamp": _timestamp(to),
            "isForce": True,
            "queueId": -1 if queue is None else queue.queue_id,
            "offset": to if isinstance(to, int) else None,
        }
        names = self._master_names()
        masters = [
            address
            for address in self._masters_of(topic)
            if queue is None or names.get(address) == queue.broker
        ]

        def reset(address: str) -> dict[QueueId, int]:
            if queue is not None and not resets_by_itself(self, address, group):
                return reset_queue(self, address, group, topic, to, queue)
            try:
                answer = self._request(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
            except BrokerError as error:
                return reset_refused(self, address, group, topic, to, queue, error)
            table = body_of(answer).get("offsetTable") or {}
            return {queue_of(name): int(offset) for name, offset in table.items()}

        each = on_each(self, masters, reset, done="moved at").values()
        found = {one: offset for moved in each for one, offset in moved.items()}
        if not found:
            raise ConfigError(f"no broker has the queue {queue} of the topic `{topic}`")
        return dict(sorted(found.items()))

    def delete_group(self: Requester, group: str, *, keep_offsets: bool = False) -> None:
        """Delete a consumer group on every broker.

        Args:
            group: Consumer group.
            keep_offsets: Keep its offsets for a new group of this name.

        Raises:
            BrokerError: No broker knows the group, or one refused; the text says why.

        Example:
            >>> admin.delete_group("kitchen")  # doctest: +SKIP
        """
        self.require_group(group)
        fields: dict[str, str | int | bool | None] = {
            "groupName": group,
            "cleanOffset": not keep_offsets,
        }
        for address in self._masters(None, None):
            self._request(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)


def _unknown(group: str, known: Sequence[str]) -> BrokerError:
    from difflib import get_close_matches

    near = get_close_matches(group, known, n=1)
    hint = f": did you mean `{near[0]}`?" if near else ""
    return BrokerError(
        f"no broker has the consumer group `{group}`{hint}",
        code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )


def _config(admin: Requester, address: str, group: str) -> Mapping[str, object]:
    # The whole table, since brokers before 4.9.3 do not answer for one group.
    answer = admin._request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    config = (body_of(answer).get("subscriptionGroupTable") or {}).get(group)
    return config if isinstance(config, dict) else {}


def _delays(admin: Requester, address: str, group: str, topics: set[str]) -> dict[QueueId, int]:
    found: dict[QueueId, int] = {}
    for topic in sorted(topics):
        answer = admin._request(
            address, RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group}
        )
        for span in body_of(answer).get("consumeTimeSpanSet") or []:
            found[queue_of(span.get("messageQueue"))] = int(span.get("delayTime", 0))
    return found


def _timestamp(to: int | str | datetime) -> int:
    if isinstance(to, datetime):
        return round(to.timestamp() * 1000)
    return -1 if to == "last" else 0
