"""The list of topics that a pattern is compared with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq._client.values import name_servers
from pyrmq._names import INTERNAL_PREFIXES
from pyrmq.codes import RequestCode
from pyrmq.errors import RmqError
from pyrmq.remoting import Client

if TYPE_CHECKING:
    from pyrmq._client.options.consumer import ConsumerOptions

__all__ = ["all_topics"]


def all_topics(options: ConsumerOptions) -> set[str]:
    """Ask the name servers for all topics of a consumer's namespace, as the consumer names them.

    Raises:
        RmqError: No name server answered, or one refused.
    """
    failure: RmqError | None = None
    with Client(credentials=options.credentials, tls=options.tls) as client:
        for address in name_servers(options.name_server):
            try:
                answer = client.ask(address, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            except RmqError as error:
                failure = error
                continue
            names: list[str] = json.loads(answer.body or b"{}").get("topicList", [])
            return {topic for name in names if (topic := _own(name, options.namespace)) is not None}
    assert failure is not None
    raise failure


def _own(name: str, namespace: str) -> str | None:
    """Return a topic as its consumer names it; None for others' and RocketMQ's own."""
    if name in _core.SYSTEM_TOPICS or name.startswith(INTERNAL_PREFIXES):
        return None
    if not namespace:
        return name
    prefix = f"{namespace}%"
    return name.removeprefix(prefix) if name.startswith(prefix) else None
