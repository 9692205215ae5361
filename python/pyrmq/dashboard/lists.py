"""Pages of tables, and which names are RocketMQ's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq._names import FILTER_SERVER_GROUP, INTERNAL_PREFIXES, SELF_TEST_GROUP, TOOLS_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq.message import QueueId

Tree = dict[str, Any]

PAGE_ROWS = 50
_TOOLS = frozenset({TOOLS_GROUP, FILTER_SERVER_GROUP, SELF_TEST_GROUP})
_OWN_GROUPS = "CID_"


def named(queue: QueueId) -> Tree:
    """A queue as the first members of a row."""
    return {"topic": queue.topic, "broker": queue.broker, "queue": queue.queue_id}


def page_of(rows: Sequence[Any], page: int) -> list[Any]:
    """The rows of a page."""
    return list(rows[page * PAGE_ROWS : (page + 1) * PAGE_ROWS])


def table(names: Sequence[str], page: int, rows: list[Tree], *, is_ranked: bool) -> Tree:
    """A page of a table; `is_ranked` says that its rows are in the order of their figures."""
    return {
        "total": len(names),
        "page": page,
        "page_rows": PAGE_ROWS,
        "ranked": is_ranked,
        "rows": rows,
    }


def is_system(topic: str, names: frozenset[str]) -> bool:
    """Whether a topic is the system's own; `names` are those that depend on the cluster."""
    return topic in names or topic.startswith(INTERNAL_PREFIXES)


def is_own(group: str) -> bool:
    """Whether a group is RocketMQ's own."""
    return group in _TOOLS or group.startswith(_OWN_GROUPS)
