"""What the parts of `Admin` need of it, and how its answers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyrmq import _core
from pyrmq.errors import BrokerError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyrmq.remoting import Command


class Asks(Protocol):
    """An administrator's connections and routes."""

    def _ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int | bool | None] | None = None,
        body: bytes | None = None,
    ) -> Command:
        """Ask a server; an answer other than success is raised."""

    def _masters(self, cluster: str | None, brokers: Sequence[str] | None) -> list[str]:
        """The addresses of masters."""

    def _masters_of(self, topic: str) -> list[str]:
        """The addresses of the masters that have a topic."""

    def _master_names(self) -> dict[str, str]:
        """The broker name of each master's address."""


def body_of(answer: Command) -> dict[Any, Any]:
    """The JSON object in an answer's body."""
    parsed = _core.parse_json(answer.body or b"{}")
    if not isinstance(parsed, dict):
        raise BrokerError("the answer's body is not a JSON object")
    return parsed


def queue_of(name: object) -> QueueId:
    """The queue that is the name of a member: Apache writes the queue itself there."""
    pairs = dict(name) if isinstance(name, tuple | dict) else {}
    return QueueId(
        str(pairs.get("topic", "")), str(pairs.get("brokerName", "")), int(pairs.get("queueId", -1))
    )
