"""The name server's tables for its operator: read-only copies of one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyrmq import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

# Apache `MQVersion`: from V4_0_0 on each minor version owns twenty ordinals, two for each patch.
_V4_0_0, _OF_MINOR, _OF_PATCH, _MINORS_OF_4 = 213, 20, 2, 10


class LiveBroker(NamedTuple):
    """A live broker process.

    Attributes:
        cluster: its cluster's name.
        name: its broker name.
        broker_id: 0 is the master.
        address: `host:port` for clients.
        advertised: address set to the `host:port` for its clients.
        ha_address: `host:port` for its slaves.
        zone: its zone, or None.
        version: version of its software, such as `5.5.0`.
        silent_seconds: time since its last registration or heartbeat.
        timeout_seconds: time without one after which it is removed.
        topics: topics of its broker name.
        acting_master: whether a slave of this name may stand in for its master.
        replaced_address: the address that last had this name and id, if it was another one: a
            restarted broker's earlier address, or a second broker with the same identity.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    advertised: Mapping[str, str]
    ha_address: str
    zone: str | None
    version: str
    silent_seconds: float
    timeout_seconds: float
    topics: int
    acting_master: bool
    replaced_address: str | None


class RouteBroker(NamedTuple):
    """A broker name in a route.

    Attributes:
        name: broker name.
        cluster: its cluster's name.
        addresses: broker id to `host:port`; id 0 is the master.
    """

    name: str
    cluster: str
    addresses: Mapping[int, str]


class RouteQueues(NamedTuple):
    """A topic's queues on one broker name.

    Attributes:
        broker: broker name.
        read_queues: queues 0 up to this may be read.
        write_queues: queues 0 up to this may be written.
        perm: permission bits: 4 read, 2 write, 1 inherit.
        sys_flag: unit flags.
    """

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int


class Route(NamedTuple):
    """The route of a topic.

    Attributes:
        topic: the topic.
        brokers: the brokers that have it, by name.
        queues: its queues on each of them, by name.
        order: its order configuration (`broker:count;...`), where routes carry it.
    """

    topic: str
    brokers: tuple[RouteBroker, ...]
    queues: tuple[RouteQueues, ...]
    order: str | None


def version_name(ordinal: int) -> str:
    """Name the RocketMQ version of the ordinal that it sends in each header.

    Args:
        ordinal: Apache's `MQVersion` number.

    Example:
        >>> version_name(513), version_name(333), version_name(412)
        ('5.5.0', '4.6.0', '4.9.10-SNAPSHOT')
    """
    if ordinal < _V4_0_0:
        return f"before 4.0 ({ordinal})"
    minor, rest = divmod(ordinal - _V4_0_0, _OF_MINOR)
    major, minor = (4, minor) if minor < _MINORS_OF_4 else (5, minor - _MINORS_OF_4)
    patch = (rest + 1) // _OF_PATCH
    return f"{major}.{minor}.{patch}" + ("-SNAPSHOT" if rest % _OF_PATCH else "")


def live_broker(seen: Mapping[str, Any]) -> LiveBroker:
    """Make a `LiveBroker` from the core's answer.

    Example:
        >>> [live_broker(seen) for seen in core.brokers()]  # doctest: +SKIP
    """
    return LiveBroker(
        cluster=seen["cluster"],
        name=seen["name"],
        broker_id=seen["broker_id"],
        address=seen["address"],
        advertised=seen["advertised"],
        ha_address=seen["ha_address"],
        zone=seen["zone"],
        version=version_name(seen["software"]),
        silent_seconds=seen["silent_ms"] / 1000,
        timeout_seconds=seen["timeout_ms"] / 1000,
        topics=seen["topics"],
        acting_master=seen["acting_master"],
        replaced_address=seen["replaced_address"],
    )


def route(topic: str, body: bytes) -> Route:
    """Read a route from the body of an answer to request 105.

    Example:
        >>> route("orders", b'{"queueDatas":[{"brokerName":"a","perm":6}]}').queues[0].perm
        6
    """
    tree: Any = _core.parse_json(body)
    brokers = (
        RouteBroker(
            data["brokerName"],
            data.get("cluster", ""),
            {int(key): address for key, address in data.get("brokerAddrs", {}).items()},
        )
        for data in tree.get("brokerDatas") or []
    )
    queues = (
        RouteQueues(
            data["brokerName"],
            data.get("readQueueNums", 0),
            data.get("writeQueueNums", 0),
            data.get("perm", 0),
            data.get("topicSysFlag", 0),
        )
        for data in tree.get("queueDatas") or []
    )
    return Route(topic, tuple(brokers), tuple(queues), tree.get("orderTopicConf"))
