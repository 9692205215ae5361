"""The client ids of this process's consumers, to warn of two that brokers take for one member."""

from __future__ import annotations

import logging
import os
import threading
import weakref

__all__ = ["note_member"]

_log = logging.getLogger("pyrmq.consumer")

_members: weakref.WeakValueDictionary[tuple[int, str, str], object] = weakref.WeakValueDictionary()
# Guards the members.
_lock = threading.Lock()


def note_member(group: str, client_id: str, consumer: object) -> None:
    """Record a consumer by its client id; warn if another one of its group has the same id.

    Brokers distinguish members by their client id: two members with one id both take the same
    queues, and the others stay unread.
    """
    key = (os.getpid(), group, client_id)
    with _lock:
        other = _members.get(key)
        _members[key] = consumer
    if other is not None and not getattr(other, "_closed", False):
        _log.warning(
            "group %s: two consumers of this process have the client id %s; brokers take them for "
            "one member, so some queues are read twice, others not at all. Fix: give each its own "
            "`instance_name`, or none",
            group,
            client_id,
        )
