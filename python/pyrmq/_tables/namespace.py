"""Names in a namespace, as Apache's `NamespaceUtil` makes them: ``shop%orders`` is topic orders.

RocketMQ's own topics are in no namespace, and the prefix of a retry or dead letter topic stays in
front: ``%DLQ%shop%billing``.
"""

from __future__ import annotations

from pyrmq import _core
from pyrmq._names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX

__all__ = ["plain", "wrapped"]

_GROUP_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_SYSTEM_TOPICS = frozenset(_core.SYSTEM_TOPICS)


def wrapped(namespace: str, name: str) -> str:
    """Return a topic's or group's name in a namespace; a name in it stays unchanged.

    Example:
        >>> wrapped("shop", "orders"), wrapped("shop", "%DLQ%billing"), wrapped("", "orders")
        ('shop%orders', '%DLQ%shop%billing', 'orders')
    """
    if not namespace or name in _SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX):
        return name
    prefix = next((start for start in _GROUP_PREFIXES if name.startswith(start)), "")
    bare = name.removeprefix(prefix)
    return name if bare.startswith(f"{namespace}%") else f"{prefix}{namespace}%{bare}"


def plain(namespace: str, name: str) -> str | None:
    """Return a name without its namespace; None when it is in another one or in none.

    Example:
        >>> plain("shop", "shop%orders"), plain("shop", "orders"), plain("", "orders")
        ('orders', None, 'orders')
    """
    if not namespace:
        return name
    prefix = next((start for start in _GROUP_PREFIXES if name.startswith(start)), "")
    bare = name.removeprefix(prefix)
    inside = bare.removeprefix(f"{namespace}%")
    return None if inside == bare else prefix + inside
