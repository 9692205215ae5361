"""Resets of offsets at brokers that leave them to the group's members.

That is every broker before 5.1, and a later one with ``useServerSideResetOffset=false``. It tells
connected members where to go on, and refuses if there are none. It looks at the topic only: a
request for one queue would move all of them, to the beginning.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from pyrmq._admin.requests import body_of, queue_of
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import BrokerError, ConfigError, NotSupported, PermissionDenied

if TYPE_CHECKING:
    from pyrmq._admin.requests import Requester
    from pyrmq.message import QueueId

    Target = int | Literal["first", "last"] | datetime

_OPTION = b"useServerSideResetOffset=true"


def resets_by_itself(admin: Requester, address: str) -> bool:
    """Whether a broker resets offsets by itself, and so those of one queue as well."""
    try:
        options = admin._request(address, RequestCode.GET_BROKER_CONFIG).body or b""
    except PermissionDenied:
        # Brokers with the permissions of 5.3 do so by default.
        return True
    return _OPTION in options.replace(b" ", b"")


def require_no_members(admin: Requester, address: str, group: str) -> None:
    """Refuse a group with connected members: they would commit their own offset again."""
    try:
        fields = {"consumerGroup": group}
        admin._request(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return
    raise NotSupported(
        f"the broker {address} cannot move one queue of the group `{group}` while members are "
        "connected (RocketMQ before 5.1, or useServerSideResetOffset=false). Fix: stop them first, "
        "or move all queues",
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        address=address,
    )


def commit_target(
    admin: Requester, address: str, group: str, topic: str, to: Target, queue: QueueId | None
) -> dict[QueueId, int]:
    """Commit new offsets for a group without connected members (Apache `resetOffsetByTimeOld`).

    Raises:
        ConfigError: The queue does not have the offset.
    """
    answer = admin._request(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
    moved: dict[QueueId, int] = {}
    for name, offsets in (body_of(answer).get("offsetTable") or {}).items():
        one = queue_of(name)
        if queue not in {None, one}:
            continue
        first, last = int(offsets.get("minOffset", 0)), int(offsets.get("maxOffset", 0))
        place: dict[str, str | int | bool | None] = {"topic": topic, "queueId": one.queue_id}
        if isinstance(to, datetime):
            fields = place | {"timestamp": round(to.timestamp() * 1000)}
            found = admin._request(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
            offset = int(found.fields["offset"])
        elif isinstance(to, int):
            if not first <= to <= last:
                raise ConfigError(f"the offset is {to}, {one} has {first} to {last}")
            offset = to
        else:
            offset = first if to == "first" else last
        fields = place | {"consumerGroup": group, "commitOffset": offset}
        admin._request(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        moved[one] = offset
    return moved
