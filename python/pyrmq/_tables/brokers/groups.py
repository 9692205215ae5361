"""Makes a group known that commits offsets and has no members, as a stream's.

Apache's tools find groups by their retry topics, which brokers create when a member sends its first
heartbeat: without one, `mqadmin consumerProgress` shows no lag.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyrmq._names import RETRY_PREFIX
from pyrmq._tables.brokers.wire import TRANSIENT
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import RmqError, TopicNotFound
from pyrmq.remoting import Command, answer_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyrmq import _core
    from pyrmq._tables.brokers.wire import Fields
    from pyrmq.admin import Admin

__all__ = ["KnownGroup"]

_log = logging.getLogger("pyrmq.spark")


@dataclass
class KnownGroup:
    """A group, and the brokers that have its retry topic.

    Args:
        connections: to the brokers.
        admin: the name servers.
        name: the group, with its namespace.
    """

    connections: _core.Connections
    admin: Admin
    name: str
    _at: set[str] = field(default_factory=set, init=False)
    _refused: set[str] = field(default_factory=set, init=False)
    _is_hidden: bool = field(default=False, init=False)
    """The name server refuses the route of the retry topic."""

    def announce(
        self, brokers: Iterable[str], addresses: Mapping[str, str], timeout_ms: int
    ) -> None:
        """Join the group and leave it at once, on brokers that have no retry topic of it.

        A broker that gives no answer is tried again with the next call. A refusal is final: it
        would only be repeated with each commit.

        Args:
            brokers: names of the brokers.
            addresses: their addresses by name.
            timeout_ms: milliseconds for each request.
        """
        unknown = set(brokers) - self._at - self._refused
        new = [broker for broker in sorted(unknown) if broker in addresses]
        if not new or self._is_hidden:
            return
        try:
            self._at |= self._brokers_with_retry_topic()
        except TRANSIENT as error:
            _log.debug("group %s is not announced yet: %s", self.name, error)
            return
        except RmqError as error:
            self._is_hidden = True
            _log.warning("group %s: `mqadmin consumerProgress` shows no lag: %s", self.name, error)
            return
        for broker in new:
            if broker not in self._at:
                self._announce_to(broker, addresses[broker], timeout_ms)

    def _announce_to(self, broker: str, address: str, timeout_ms: int) -> None:
        try:
            self._join_and_leave(address, timeout_ms)
        except TRANSIENT as error:
            _log.debug("group %s is not announced to %s yet: %s", self.name, broker, error)
        except RmqError as error:
            self._refused.add(broker)
            _log.warning(
                "group %s: `mqadmin consumerProgress` shows no lag of broker %s: %s",
                self.name,
                broker,
                error,
            )
        else:
            self._at.add(broker)

    def _brokers_with_retry_topic(self) -> set[str]:
        try:
            route = self.admin.route(f"{RETRY_PREFIX}{self.name}")
        except TopicNotFound:
            return set()
        return {broker.name for broker in route.brokers}

    def _join_and_leave(self, address: str, timeout_ms: int) -> None:
        client = f"{socket.gethostname()}@{os.getpid()}#spark"
        member = {
            "groupName": self.name,
            "consumeType": "CONSUME_ACTIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": False,
        }
        beat = {"clientID": client, "producerDataSet": [], "consumerDataSet": [member]}
        leave: Fields = {"clientID": client, "consumerGroup": self.name}
        for request in (
            Command(int(RequestCode.HEART_BEAT), {}, json.dumps(beat).encode()),
            Command(int(RequestCode.UNREGISTER_CLIENT), leave),
        ):
            answer = self.connections.request(address, request, timeout_ms)
            if answer.code != ResponseCode.SUCCESS:
                raise answer_error(address, request.code, answer)
