"""Converts a name server's answer for comparison: lists sorted, names of other sequences removed.

It also removes differences listed in docs/differences.md: texts of refusals, the remark of 901, the
JSON form of routes filtered by zone, static topics of removed brokers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from pyrmq._core import Command

_LISTS = {
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}
_FORM = re.compile(rb'"brokerAddrs":\{("?)')


def comparable(
    code: int, answer: Command, prefix: str, *, zoned: bool = False, mapped: frozenset[str] | None
) -> object:
    """Return the parts of an answer that both name servers must share.

    Args:
        code: the request code.
        answer: the answer.
        prefix: beginning of the names of this sequence.
        zoned: the request named a zone.
        mapped: the brokers whose static topics are compared; None if no broker has any.
    """
    fields = dict(answer.fields)
    body = answer.body
    if body is None or code == RequestCode.GET_NAMESRV_CONFIG:
        return answer.code, fields, body is not None
    if code == RequestCode.GET_BROKER_MEMBER_GROUP:
        return answer.code, fields, body
    tree: Any = _core.parse_json(body)
    form = None if zoned else bool(match[1]) if (match := _FORM.search(body)) else None
    if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        tree = _route(tree, mapped or frozenset())
        single = len(tree["queueDatas"]) == 1 and len(tree["filterServerTable"]) <= 1
        if single and not zoned and mapped is None:
            # Nothing to sort: every byte must be the same.
            return answer.code, fields, body
        if zoned:
            # The form differs on purpose.
            tree = _named_by_text(tree)
    elif code == RequestCode.GET_BROKER_CLUSTER_INFO:
        tree = _clusters(tree, prefix)
    elif code in _LISTS:
        tree = sorted(name for name in tree["topicList"] if name.startswith(prefix))
    elif "table" in tree:
        table = tree["table"]
        tree = {key: value for key, value in table.items() if key.startswith(prefix)}
    return answer.code, fields, form, tree


def _route(tree: dict[str, Any], mapped: frozenset[str]) -> dict[str, Any]:
    tree["brokerDatas"].sort(key=lambda data: data["brokerName"])
    tree["queueDatas"].sort(key=lambda data: data["brokerName"])
    mapping = tree.get("topicQueueMappingByBroker")
    if mapping is not None:
        kept = {name: info for name, info in mapping.items() if name in mapped}
        del tree["topicQueueMappingByBroker"]
        if kept:
            tree["topicQueueMappingByBroker"] = kept
    return tree


def _named_by_text(tree: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(tree, dict):
        return {str(key): _named_by_text(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_named_by_text(value) for value in tree]
    return tree


def _clusters(tree: dict[str, Any], prefix: str) -> dict[str, Any]:
    brokers, clusters = tree["brokerAddrTable"], tree["clusterAddrTable"]
    return {
        "brokers": {name: data for name, data in brokers.items() if name.startswith(prefix)},
        "clusters": {
            name: sorted(members) for name, members in clusters.items() if name.startswith(prefix)
        },
    }
