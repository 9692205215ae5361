"""Collects what the checks read, from all servers at the same time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._names import V5_0_0
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BROKER_STATUS, NAME_SERVER_STATUS
from pyrmq.doctor.network import Dialed, is_container_bridge, split
from pyrmq.doctor.servers import Server, from_all
from pyrmq.errors import RmqError
from pyrmq.remoting import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["BrokerFacts", "Facts", "Member", "NameServerFacts", "Query", "collect"]


@dataclass(frozen=True, slots=True)
class Query:
    """The subject of an examination.

    Attributes:
        name_servers: `host:port` of each.
        topic: A topic to check, or None.
        group: A consumer group to check, or None.
        timeout: Seconds for each request. Requests that a server does not answer take 4.5 s
            together at most, or this if it is more.
    """

    name_servers: Sequence[str]
    topic: str | None
    group: str | None
    timeout: float


@dataclass(frozen=True, slots=True)
class NameServerFacts:
    """A name server.

    Attributes:
        address: As the user wrote it.
        dialed: Result of the request for its brokers.
        brokers: Address by broker name and id.
        clusters: Broker names by cluster.
        status: State of pyrmq's name server; empty for Apache's.
        config: Its options by Apache's names (request 319).
        route: Answer about the topic, if one was given.
        clock_offset: Its clock minus ours in seconds, if it reports its time.
        unanswered: Why a request after the first one had no answer; empty if each had one.
    """

    address: str
    dialed: Dialed
    brokers: Mapping[tuple[str, int], str] = field(default_factory=dict)
    clusters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    route: _core.Command | None = None
    clock_offset: float | None = None
    unanswered: str = ""

    @property
    def title(self) -> str:
        """Its name in texts."""
        return f"name server {self.address}"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A broker process, as reached at the address that name servers give to clients.

    Attributes:
        name: Broker name.
        number: Broker id; 0 is the master.
        address: The advertised address.
        dialed: Result of the request for its state; None if there was none, because the address is
            in a container's network.
        runtime: Apache's runtime table (request 28).
        config: Its options by Apache's names (request 26).
        status: State of pyrmq's broker; empty for Apache's.
        clock_offset: Its clock minus ours in seconds.
        unanswered: Why a request after the first one had no answer; empty if each had one.
    """

    name: str
    number: int
    address: str
    dialed: Dialed | None = None
    runtime: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    clock_offset: float | None = None
    unanswered: str = ""

    @property
    def title(self) -> str:
        """Its name in texts."""
        return f"broker {self.name} ({self.address})"


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of the group.

    Attributes:
        client_id: Its client id.
        address: Its address.
        subscriptions: Filter expression by topic.
    """

    client_id: str
    address: str
    subscriptions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the checks read."""

    query: Query
    name_servers: Sequence[NameServerFacts]
    brokers: Sequence[BrokerFacts]
    members: Sequence[Member] = ()


def collect(query: Query, report: Callable[[str], object] = lambda _: None) -> Facts:
    """Read from every server. Nothing is raised: a failure is a fact.

    Args:
        query: The subject.
        report: Called with a text for each step, in this thread.
    """
    client = Client(connect_timeout=query.timeout)
    try:
        servers = from_all(
            "name server",
            query.name_servers,
            query.name_servers,
            lambda address: _name_server(Server(client, query.timeout, address), query),
            report,
        )
        places = sorted(
            {
                (name, number, address)
                for server in servers
                for (name, number), address in server.brokers.items()
            }
        )
        links = {address: Server(client, query.timeout, address) for _, _, address in places}
        brokers = from_all(
            "broker",
            [f"{name} ({address})" for name, _, address in places],
            places,
            lambda place: _broker(links[place[2]], place[0], place[1]),
            report,
        )
        return Facts(query, servers, brokers, _members(links, query, brokers, report))
    finally:
        client.close()


def _status(server: Server, code: int, known: _core.Command) -> Mapping[str, Any]:
    """Request the state of pyrmq's server; empty if an earlier answer shows another server."""
    return _json(server.request(code).body) if known.version >= V5_0_0 else {}


def _name_server(server: Server, query: Query) -> NameServerFacts:
    dialed = server.dial(RequestCode.GET_BROKER_CLUSTER_INFO)
    if dialed.answer is None or dialed.answer.code != ResponseCode.SUCCESS:
        return NameServerFacts(server.address, dialed)
    info = _json(dialed.answer.body)
    brokers = {
        (name, int(number)): str(place)
        for name, data in (info.get("brokerAddrTable") or {}).items()
        for number, place in (data.get("brokerAddrs") or {}).items()
    }
    began = time.time()
    status = _status(server, NAME_SERVER_STATUS, dialed.answer)
    clock_offset = _offset(status.get("time_ms"), began)
    route = None
    if query.topic is not None:
        fields = {"topic": query.topic, "acceptStandardJsonOnly": "true"}
        route = server.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    return NameServerFacts(
        server.address,
        dialed,
        brokers,
        {name: list(names) for name, names in (info.get("clusterAddrTable") or {}).items()},
        status,
        _config(server, RequestCode.GET_NAMESRV_CONFIG),
        route,
        clock_offset,
        server.unanswered,
    )


def _broker(server: Server, name: str, number: int) -> BrokerFacts:
    address = server.address
    try:
        outside = is_container_bridge(split(address)[0])
    except ValueError:
        outside = False
    if outside:
        return BrokerFacts(name, number, address)
    began = time.time()
    dialed = server.dial(RequestCode.GET_BROKER_RUNTIME_INFO)
    if dialed.answer is None or dialed.answer.code != ResponseCode.SUCCESS:
        return BrokerFacts(name, number, address, dialed)
    runtime = {
        key: str(text) for key, text in (_json(dialed.answer.body).get("table") or {}).items()
    }
    config = _config(server, RequestCode.GET_BROKER_CONFIG)
    requested_at = time.time()
    status = _status(server, BROKER_STATUS, dialed.answer)
    offset = _offset(status.get("time_ms"), requested_at)
    if offset is None:
        offset = _offset(_time_of(runtime), began)
    return BrokerFacts(
        name, number, address, dialed, runtime, config, status, offset, server.unanswered
    )


def _config(server: Server, code: int) -> dict[str, str]:
    """Ask a server for its options; none if it does not answer."""
    lines = (server.request(code).body or b"").decode("utf-8", "replace")
    pairs = (line.partition("=") for line in lines.splitlines() if "=" in line)
    return {key.strip(): text.strip() for key, _, text in pairs}


def _time_of(runtime: Mapping[str, str]) -> int | None:
    """A broker's time from its boot time and uptime, exact to a second."""
    words = runtime.get("runtime", "").strip("[] ").split(", ")
    units = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
    try:
        pairs = [word.split() for word in words]
        seconds = sum(int(number) * units[unit] for number, unit in pairs)
        return int(runtime["bootTimestamp"]) + 1000 * seconds
    except (KeyError, ValueError):
        return None


def _offset(time_ms: object, began: float) -> float | None:
    if not isinstance(time_ms, int):
        return None
    # The answer was made between the request and now.
    middle = (began + time.time()) / 2
    return time_ms / 1000 - middle


def _members(
    links: Mapping[str, Server],
    query: Query,
    brokers: Iterable[BrokerFacts],
    report: Callable[[str], object],
) -> list[Member]:
    """Request the subscriptions of each consumer of the group, through a broker."""
    if query.group is None:
        return []
    found: dict[str, Member] = {}
    for broker in brokers:
        if not broker.runtime:
            continue
        fields = {"consumerGroup": query.group}
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        server = links[broker.address]
        answer = server.request(code, fields)
        for one in _json(answer.body).get("connectionSet") or []:
            name = str(one.get("clientId", ""))
            if name in found:
                continue
            report(f"group {query.group}: {len(found)} members done, waiting for {name}")
            fields = {"consumerGroup": query.group, "clientId": name, "jstackEnable": "false"}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            running = _json(server.request(code, fields).body)
            reads = {
                str(each.get("topic", "")): str(each.get("subString", ""))
                for each in running.get("subscriptionSet") or []
            }
            found[name] = Member(name, str(one.get("clientAddr", "")), reads)
    return [found[name] for name in sorted(found)]


def _json(body: bytes | None) -> dict[str, Any]:
    try:
        parsed: Any = _core.parse_json(body or b"{}")
    except (RmqError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
