"""Resets of offsets at brokers that leave them to the group's members.

That is every broker before 5.1, and a later one with ``useServerSideResetOffset=false``, which is
the default before 5.2. It tells connected members where to continue, and refuses if there are
none, or if the group has not committed every queue. It looks at the topic only: a request for one
queue would move all of them, to the beginning.
"""

from __future__ import annotations

from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pyrmq._admin.requests import body_of, queue_of
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import (
    BrokerError,
    ConnectionLost,
    NotSupported,
    PermissionDenied,
    RequestTimeout,
)

if TYPE_CHECKING:
    from pyrmq._admin.requests import Requester
    from pyrmq.message import QueueId

    Target = int | Literal["first", "last"] | datetime

_OPTION = b"useServerSideResetOffset=true"


def resets_by_itself(admin: Requester, address: str, group: str) -> bool:
    """Whether a broker resets offsets by itself, and so those of one queue as well.

    Raises:
        PermissionDenied: The broker does not tell, and a wrong guess would move every queue.
    """
    try:
        options = admin._request(address, RequestCode.GET_BROKER_CONFIG).body or b""
    except PermissionDenied as error:
        # Without members a request for one queue moves that queue, or nothing.
        if not _has_members(admin, address, group):
            return True
        refusal = copy(error)
        refusal.args = (
            f"whether the broker {address} can move one queue while members of `{group}` are "
            f"connected is in its options: {error}. Fix: permit this request, or stop the members",
        )
        raise refusal from error
    return _OPTION in options.replace(b" ", b"")


def reset_queue(
    admin: Requester, address: str, group: str, topic: str, to: Target, queue: QueueId
) -> dict[QueueId, int]:
    """Move one queue of a group without connected members.

    Returns:
        Its new offset; nothing if the broker does not have the queue.

    Raises:
        NotSupported: Members are connected: they would commit their own offset again.
        BrokerError: No broker knows the group, or the queue does not have the offset.
    """
    offsets = _targets(admin, address, topic, to, queue)
    if not offsets:
        return {}
    _require_known(admin, address, group)
    if _has_members(admin, address, group):
        raise NotSupported(
            f"the broker {address} cannot move one queue of the group `{group}` while members are "
            "connected (RocketMQ before 5.2, or useServerSideResetOffset=false). Fix: stop them "
            "first, or move all queues, or set useServerSideResetOffset=true (from 5.1 on)",
            code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            address=address,
        )
    return _commit(admin, address, group, offsets)


def reset_refused(
    admin: Requester,
    address: str,
    group: str,
    topic: str,
    to: Target,
    queue: QueueId | None,
    refusal: BrokerError,
) -> dict[QueueId, int]:
    """Move what the broker refused to move, if that is because there are no members to tell.

    Raises:
        BrokerError: The refusal, if it had another reason; or members are connected.
    """
    if refusal.code != ResponseCode.CONSUMER_NOT_ONLINE:
        # Such a broker looks for the offset of each queue first, and for members then.
        if f"consumer group <{group}> not exist" not in refusal.remark:
            raise refusal
        _require_known(admin, address, group)
        if _has_members(admin, address, group):
            raise BrokerError(
                f"the broker {address} tells members of new offsets only if their group has "
                f"committed every queue of the topic `{topic}`: {refusal.remark}. Fix: let the "
                f"members of `{group}` commit once, or stop them first, or set "
                "useServerSideResetOffset=true (from RocketMQ 5.1 on)",
                code=refusal.code,
                remark=refusal.remark,
                address=address,
            ) from refusal
    return _commit(admin, address, group, _targets(admin, address, topic, to, queue))


def _require_known(admin: Requester, address: str, group: str) -> None:
    """Refuse a group that no broker knows; other brokers are asked only if this one does not."""
    answer = admin._request(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    if group in (body_of(answer).get("subscriptionGroupTable") or {}):
        return
    # A group that was deleted with `keep_offsets` has only offsets.
    answer = admin._request(address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group})
    if body_of(answer).get("offsetTable"):
        return
    try:
        admin.require_group(group)
    except (ConnectionLost, RequestTimeout) as error:
        raise BrokerError(
            f"the broker {address} does not know the consumer group `{group}`, and another one "
            f"could not be asked: {error}",
            code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            address=address,
        ) from error


def _has_members(admin: Requester, address: str, group: str) -> bool:
    try:
        fields = {"consumerGroup": group}
        admin._request(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return False
    return True


def _targets(
    admin: Requester, address: str, topic: str, to: Target, queue: QueueId | None
) -> dict[QueueId, int]:
    """The new offset of each queue that a broker has."""
    answer = admin._request(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    found: dict[QueueId, int] = {}
    for name, offsets in (body_of(answer).get("offsetTable") or {}).items():
        one = queue_of(name)
        if queue not in {None, one}:
            continue
        first, last = int(offsets.get("minOffset", 0)), int(offsets.get("maxOffset", 0))
        if isinstance(to, datetime):
            fields: dict[str, str | int | bool | None] = {
                "topic": topic,
                "queueId": one.queue_id,
                "timestamp": round(to.timestamp() * 1000),
            }
            place = admin._request(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            found[one] = int(place.fields["offset"])
        elif isinstance(to, int):
            if not first <= to <= last:
                text = f"the offset is {to}, {one} has {first} to {last}"
                raise BrokerError(text, address=address)
            found[one] = to
        else:
            found[one] = first if to == "first" else last
    return found


def _commit(
    admin: Requester, address: str, group: str, offsets: dict[QueueId, int]
) -> dict[QueueId, int]:
    """Commit new offsets (Apache `resetOffsetByTimeOld`), and return them."""
    for queue, offset in offsets.items():
        fields: dict[str, str | int | bool | None] = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "commitOffset": offset,
        }
        admin._request(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    return offsets
