"""Members of a group with different subscriptions, as they report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq._admin.requests import Requester, body_of, on_each
from pyrmq._names import RETRY_PREFIX
from pyrmq.codes import RequestCode
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyrmq._admin.groups import GroupMember

__all__ = ["conflicts_of", "subscriptions_of"]


def subscriptions_of(
    admin: Requester, group: str, brokers: Mapping[str, str]
) -> dict[str, Mapping[str, str] | None]:
    """Request the subscriptions of members, through the broker that knows each.

    Returns:
        The filter of each topic; None for a member without a readable answer.
    """

    def request(client: str) -> Mapping[str, str] | None:
        fields = {"consumerGroup": group, "clientId": client, "jstackEnable": "false"}
        try:
            answer = admin._request(brokers[client], RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            said = body_of(answer).get("subscriptionSet") or []
            return {str(one.get("topic", "")): str(one.get("subString", "")) for one in said}
        except (RmqError, TypeError, AttributeError):
            # The last two: the answer was something other than a list of objects.
            return None

    return on_each(admin, [*brokers], request)


def conflicts_of(
    members: Mapping[str, GroupMember],
) -> dict[str, dict[str | None, Sequence[str]]]:
    """Return the topics that members subscribe to differently, with the members of each filter."""
    said = {
        client: member.subscriptions
        for client, member in sorted(members.items())
        if member.subscriptions is not None
    }
    conflicts: dict[str, dict[str | None, Sequence[str]]] = {}
    for topic in sorted({topic for topics in said.values() for topic in topics}):
        if topic.startswith(RETRY_PREFIX):
            continue
        found: dict[frozenset[str] | None, list[str]] = {}
        for client, topics in said.items():
            found.setdefault(_selected(topics.get(topic)), []).append(client)
        if len(found) > 1:
            conflicts[topic] = {said[clients[0]].get(topic): clients for clients in found.values()}
    return conflicts


def _selected(expression: str | None) -> frozenset[str] | None:
    """Return what distinguishes filters, which the order of tags does not."""
    if expression is None:
        return None
    return frozenset(tag.strip() for tag in expression.split("||"))
