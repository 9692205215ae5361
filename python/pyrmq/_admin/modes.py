"""Modes in which the push consumers of a group get the messages of a topic."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyrmq._admin.requests import body_of
from pyrmq._names import V5_0_0
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import ConfigError, NotSupported

if TYPE_CHECKING:
    from pyrmq._admin.requests import Requester

__all__ = ["ConsumeMode", "Mode", "ModeAdmin"]

Mode = Literal["pop", "pull"]
"""How push consumers get messages (Apache `MessageRequestMode`)."""


@dataclass(frozen=True, slots=True)
class ConsumeMode:
    """How a group gets the messages of a topic from a broker.

    Attributes:
        mode: ``"pop"`` or ``"pull"``; None if it was never set.
        share: With ``"pop"``, how many other members pop the queues of each; 0 or -1: all.
    """

    mode: Mode | None
    share: int


class ModeAdmin:
    """The methods of `Admin` about pulls and pops."""

    def consume_modes(self: Requester, group: str, topic: str) -> dict[str, ConsumeMode]:
        """Request a group's mode for a topic, on each broker of the topic.

        Returns:
            ``"pull"`` or ``"pop"`` by broker. A broker on which none was set has ``None``: its
            `default_message_request_mode` applies, which is pull by default. One before 5.0 has no
            modes: push consumers pull from it.

        Raises:
            TopicNotFound: The name servers do not know the topic.
            BrokerError: A broker refused; the text says why.

        Example:
            >>> admin.consume_modes("kitchen", "orders")  # doctest: +SKIP
            {'broker-a': ConsumeMode(mode='pop', share=0)}
        """
        names = self._master_names()
        found: dict[str, ConsumeMode] = {}
        for address in self._masters_of(topic):
            if not _has_modes(self, address):
                found[names.get(address, address)] = ConsumeMode(None, 0)
                continue
            answer = self._request(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            groups = (body_of(answer).get("messageRequestModeMap") or {}).get(topic) or {}
            data = groups.get(group) or {}
            mode: Mode | None = None
            if data:
                mode = "pop" if data.get("mode") == "POP" else "pull"
            found[names.get(address, address)] = ConsumeMode(
                mode, int(data.get("popShareQueueNum", 0))
            )
        return dict(sorted(found.items()))

    def set_consume_mode(
        self: Requester, group: str, topic: str, mode: Mode, *, share: int = 0
    ) -> list[str]:
        """Set how the push consumers of a group get a topic (Apache `setConsumeMode`).

        Consumers follow within the interval of their rebalance (20 s); until all have, a message
        may be delivered twice.

        Args:
            group: Consumer group.
            topic: Topic.
            mode: ``"pop"``: brokers hand out each message for a time, to any member. ``"pull"``:
                members own queues.
            share: With ``"pop"``, how many other members pop the queues of each; 0 or -1: all.

        Returns:
            The brokers that accepted it.

        Raises:
            ConfigError: The mode or the share is invalid.
            TopicNotFound: The name servers do not know the topic.
            NotSupported: A broker is older than 5.0, which brought POP.
            BrokerError: A broker refused; the text says why.

        Example:
            >>> admin.set_consume_mode("kitchen", "orders", "pop")  # doctest: +SKIP
            ['broker-a', 'broker-b']
        """
        if mode not in {"pop", "pull"}:
            raise ConfigError(f"`mode` is {mode!r}, it must be 'pop' or 'pull'")
        if share < -1:
            raise ConfigError(f"`share` is {share}, it must be -1 or more")
        body = {
            "consumerGroup": group,
            "mode": mode.upper(),
            "popShareQueueNum": share,
            "topic": topic,
        }
        names = self._master_names()
        done: list[str] = []
        masters = self._masters_of(topic)
        old = [address for address in masters if not _has_modes(self, address)]
        if old:
            one = f"{names.get(old[0], 'a broker')} ({old[0]})"
            raise NotSupported(
                f"{one} is older than RocketMQ 5.0, which brought POP and its modes: push "
                f"consumers pull from it. Fix: set it when all brokers of `{topic}` are newer",
                code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                address=old[0],
            )
        for address in masters:
            self._request(
                address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode()
            )
            done.append(names.get(address, address))
        return sorted(done)


def _has_modes(admin: Requester, address: str) -> bool:
    # Brokers before 4.9.1 would send no answer to a request that they do not know.
    return admin._version(address) >= V5_0_0
