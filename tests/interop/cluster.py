"""A running name server and broker, ours or the real ones in any pairing."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from tests.interop.artifacts import VERSIONS
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KINDS = {
    "ours": ("ours", "ours"),
    "java-broker": ("ours", "java"),
    "java-names": ("java", "ours"),
    "java": ("java", "java"),
}
"""Kind of cluster to the kinds of its name server and broker."""


ASKS_SOON: dict[str, dict[str, object]] = {
    "ours": {"transactionTimeOut": 1000, "transactionCheckInterval": 500},
    "java": {"transactionTimeOut": 1000, "transactionCheckInterval": 4000},
}
"""The broker checks a transaction after a second. The real one records an end up to 3 s late; until
then it checks again, and stores again.
"""


class Server(Protocol):
    """The common interface of the four kinds of server processes."""

    @property
    def address(self) -> str:
        """``host:port`` for clients."""

    def start(self, timeout: float = ...) -> Self:
        """Start and wait until it serves."""

    def stop(self, timeout: float = ...) -> int:
        """Stop it cleanly."""

    def kill(self, timeout: float = ...) -> int:
        """Kill it with SIGKILL."""

    def log_tail(self, lines: int = ...) -> str:
        """Return the end of its log."""


@dataclass
class Cluster:
    """A running name server and broker.

    Attributes:
        kind: one of ``KINDS``.
        namesrv: address of the name server.
        broker: address of the broker.
        broker_name: its name.
        cluster_name: its cluster.
        broker_version: RocketMQ version of the broker; ours behaves as the newest.
        store: its store directory.
        servers: the processes, name server first.
    """

    kind: str
    namesrv: str
    broker: str
    broker_name: str
    cluster_name: str
    broker_version: str
    store: Path
    servers: tuple[Server, Server]


class Clusters:
    """Starts clusters at the first use; one with a real server stops when another is started.

    Tests run in the order of their clusters, so that few are started twice. Idle JVMs would take
    processor time from others.
    """

    def __init__(self, version: str) -> None:
        """Keep the RocketMQ version of the real servers."""
        self.version = version
        self._running: dict[tuple[str, str], Cluster] = {}

    def get(self, kind: str, serialize: str = "JSON") -> Cluster:
        """Return the cluster of a kind; the first call starts it."""
        key = (kind, serialize if kind != "ours" else "JSON")
        if key not in self._running:
            self._end([other for other in self._running if other[0] != "ours"])
            self._running[key] = self._start(*key)
        return self._running[key]

    def _end(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            for server in self._running.pop(key).servers:
                server.kill()

    def _start(self, kind: str, serialize: str) -> Cluster:
        who_names, who_broker = KINDS[kind]
        names = name_server(who_names, self.version, serialize)
        more = {**ASKS_SOON["java"], "recallMessageEnable": "true"} if kind == "java" else None
        one = broker(who_broker, self.version, names.address, serialize=serialize, properties=more)
        with ExitStack() as unless_all_is_well:
            for server in (names, one):
                server.start()
                unless_all_is_well.callback(server.kill)
            await_registered(names.address, one.address)
            unless_all_is_well.pop_all()
        return Cluster(
            kind=kind,
            namesrv=names.address,
            broker=one.address,
            broker_name=one.broker_name,
            cluster_name=one.cluster,
            broker_version=self.version if who_broker == "java" else VERSIONS[0],
            store=one.store_dir,
            servers=(names, one),
        )

    def close(self) -> None:
        """Kill every server; the stores are temporary, so nothing must be flushed."""
        self._end(list(self._running))


def name_server(who: str, version: str, serialize: str = "JSON") -> JavaNameServer | OurNameServer:
    """Create a name server, ours or the real one."""
    return OurNameServer() if who == "ours" else JavaNameServer(version, serialize=serialize)


def broker(
    who: str,
    version: str,
    namesrv: str,
    *,
    serialize: str = "JSON",
    store_dir: Path | None = None,
    properties: Mapping[str, object] | None = None,
) -> JavaBroker | OurBroker:
    """Create a broker, ours or the real one, that registers at a name server."""
    if who == "ours":
        return OurBroker(namesrv, store_dir=store_dir, properties=properties)
    return JavaBroker(
        version, namesrv, store_dir=store_dir, serialize=serialize, properties=properties
    )
