"""Name servers and brokers for a test, on free ports, over a temporary store."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.broker.server import Broker
from pyrmq.config import BrokerOptions, NameServerOptions
from pyrmq.config.option import check_names
from pyrmq.errors import ConfigError
from pyrmq.nameserver.server import NameServer
from pyrmq.testing.faults import Disk
from pyrmq.testing.faulty_broker import FaultyBroker
from pyrmq.testing.members import ClusterBroker, ClusterNameServer
from pyrmq.testing.ports import HOST, OUTSIDE
from pyrmq.testing.process import DiskOfProcess, InOwnProcess
from pyrmq.testing.runners import InThisProcess, side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing.faults import DiskFaults
    from pyrmq.testing.process import MakeOptions
    from pyrmq.testing.runners import Runner

_SEGMENT_BYTES = 64 * 1024 * 1024
_INDEX_SLOTS = 10_000
_INDEX_ENTRIES = 40_000
_MAX_MEMBERS = len(ascii_lowercase)
_OF_ONE = ("broker_name", "store_path_root_dir", "store_path_commit_log", "listen_port")
_OF_FAULTS = ("bind_address", "broker_ip1", "listen_port")


class Cluster:
    """Name servers and brokers that run; made by `cluster`.

    Attributes:
        name_servers: the name servers, each with `.stop()`, `.start()`, `.kill()`, `.address`
            and, with `faults=True`, `.network`.
        brokers: the brokers, each with `.stop()`, `.start()`, `.kill()`, `.address`, `.name`,
            `.store` and, with `faults=True`, `.network` and `.disk`.
    """

    def __init__(
        self,
        name_servers: tuple[ClusterNameServer, ...],
        brokers: tuple[ClusterBroker, ...],
        links: _core.Links | None = None,
    ) -> None:
        self.name_servers = name_servers
        self.brokers = brokers
        self._links = links

    @property
    def name_server(self) -> str:
        """The option `name_server` for clients: `host:port`, several with `;` between."""
        return ";".join(server.address for server in self.name_servers)

    @property
    def names(self) -> NameServer:
        """The first name server itself."""
        return self.name_servers[0].server

    @property
    def broker(self) -> Broker:
        """The first broker itself.

        Raises:
            ClosedError: it was stopped.
        """
        return self.brokers[0].server

    @property
    def store(self) -> Path:
        """The first broker's store directory."""
        return self.brokers[0].store

    def start_broker(self) -> Broker:
        """Start the first broker on its store and its former port, if it is not running.

        Returns:
            The broker.

        Example:
            >>> with cluster() as rocketmq:
            ...     rocketmq.stop_broker()
            ...     rocketmq.start_broker().health()["status"]
            'running'
        """
        self.brokers[0].start()
        return self.broker

    def stop_broker(self, timeout: float = 1.0) -> None:
        """Stop the first broker cleanly, if it runs; the store stays.

        Args:
            timeout: seconds that requests under way get.
        """
        self.brokers[0].stop(timeout)

    def start(self) -> None:
        """Start all servers that are not running, and wait until all know each other."""
        waiting: list[ClusterBroker | ClusterNameServer] = []
        # Brokers need the ports of the name servers, which are known once those run.
        for group in (self.name_servers, self.brokers):
            idle = [member for member in group if not member.running]
            side_by_side([member.begin for member in idle])
            waiting += idle
        for member in waiting:
            member.await_registration()

    def stop(self) -> None:
        """Stop all brokers, then all name servers."""
        try:
            side_by_side([member.end for member in self.brokers])
        finally:
            try:
                side_by_side([member.end for member in self.name_servers])
            finally:
                if self._links is not None:
                    self._links.close()


@contextmanager
def cluster(
    *,
    brokers: int = 1,
    name_servers: int = 1,
    faults: bool = False,
    processes: bool = False,
    store: str | os.PathLike[str] | None = None,
    **options: object,
) -> Iterator[Cluster]:
    """Run name servers and brokers inside this process, and stop them at the end.

    All listen on free ports of the loopback address. Brokers create topics by themselves unless
    an option forbids it. When the block begins, every name server knows every broker.

    Args:
        brokers: how many brokers, 1 to 26; they are called `broker-a`, `broker-b` and so on.
        name_servers: how many name servers, 1 to 26.
        faults: each server has a `.network`, each broker a `.disk` for faults
            (`pyrmq.testing.faults`). Clients then reach every server through a relay.
        processes: each server has its own process, which `.kill()` ends as `kill -9` does. They
            end with this process, however that ends.
        store: directory for the stores. Default: a temporary one that is removed at the end. The
            first broker's store in it is `store`, the second's `store-b`.
        options: options of every broker (`pyrmq.config.BrokerOptions`).

    Yields:
        The cluster: `.name_server` is the address for clients; `.brokers` and `.name_servers` are
        the servers, each with `.stop()` and `.start()` for tests of what happens then. `.broker`
        is the first broker itself.

    Raises:
        ConfigError: an option is unknown or wrong.
        ServerError: a server cannot start.

    Example:
        >>> from pyrmq import Producer
        >>> with cluster() as rocketmq:
        ...     with Producer(name_server=rocketmq.name_server, group="shop") as producer:
        ...         producer.send("orders", b"two coffees").queue_offset
        0
        >>> with cluster(brokers=2) as rocketmq:
        ...     rocketmq.brokers[1].stop()
        ...     [broker.running for broker in rocketmq.brokers]
        [True, False]
    """
    _check(brokers, name_servers, options, faults=faults)
    folder = Path(tempfile.mkdtemp(prefix="pyrmq-")) if store is None else Path(store)
    plan = _Plan(
        folder=folder,
        options=options,
        processes=processes,
        faults=faults,
        temporary=store is None,
    )
    owner = os.getpid()
    try:
        running = plan.assemble(brokers, name_servers)
        try:
            running.start()
            yield running
        finally:
            # A forked child that leaves the block does not touch its parent's servers and files.
            if os.getpid() == owner:
                running.stop()
    finally:
        if store is None and os.getpid() == owner:
            _remove(folder)


def _remove(folder: Path) -> None:
    # By this name, so that a test run can look into the directory first.
    shutil.rmtree(folder, ignore_errors=True)


def _check(brokers: int, name_servers: int, options: dict[str, object], *, faults: bool) -> None:
    counts: dict[str, object] = {"brokers": brokers, "name_servers": name_servers}
    for name, count in counts.items():
        if not isinstance(count, int) or not 1 <= count <= _MAX_MEMBERS:
            raise ConfigError(
                f"`{name}` of a cluster is a number from 1 to {_MAX_MEMBERS}: {count!r}"
            )
    if "namesrv_addr" in options:
        raise ConfigError(
            "`namesrv_addr` cannot be given: the brokers of a cluster know its name servers"
        )
    alone = sorted(set(_OF_ONE) & set(options))
    if brokers > 1 and alone:
        raise ConfigError(
            f"only the broker of a cluster of one can be given `{'`, `'.join(alone)}`: with "
            f"brokers={brokers} each has its own"
        )
    chosen = sorted(set(_OF_FAULTS) & set(options))
    if faults and chosen:
        raise ConfigError(
            f"`{'`, `'.join(chosen)}` cannot be given with faults=True: the links have these"
        )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The parts of a cluster's servers."""

    folder: Path
    options: dict[str, object]
    processes: bool
    faults: bool
    temporary: bool

    def assemble(self, brokers: int, name_servers: int) -> Cluster:
        """Make the servers; none runs yet."""
        links = _core.Links() if self.faults else None
        names = tuple(self._name_server(number, links) for number in range(name_servers))
        made = tuple(self._broker(number, names, links) for number in range(brokers))
        for server in names:
            server.meet(made)
        for broker in made:
            broker.meet(names)
        return Cluster(names, made, links)

    def _name_server(self, number: int, links: _core.Links | None) -> ClusterNameServer:
        name = f"namesrv-{ascii_lowercase[number]}"
        file = str(self.folder / f"namesrv{_suffix(number)}" / "kvConfig.json")

        def options(port: int) -> NameServerOptions:
            return NameServerOptions(listen_port=port, bind_address=HOST, kv_config_path=file)

        runner: Runner
        if self.processes:
            runner = self._process(name, "nameserver", options)
        else:
            runner = InThisProcess(name, lambda port: NameServer(options(port)))
        return ClusterNameServer(name, runner, HOST, links)

    def _broker(
        self, number: int, names: tuple[ClusterNameServer, ...], links: _core.Links | None
    ) -> ClusterBroker:
        values: dict[str, Any] = {
            "bind_address": HOST,
            "broker_ip1": OUTSIDE if self.faults else HOST,
            "broker_name": f"broker-{ascii_lowercase[number]}",
            "listen_port": 0,
            "store_path_root_dir": self.folder / f"store{_suffix(number)}",
            "mapped_file_size_commit_log": _SEGMENT_BYTES,
            "max_hash_slot_num": _INDEX_SLOTS,
            "max_index_num": _INDEX_ENTRIES,
            **self.options,
        }
        check_names(BrokerOptions, values)

        def options(port: int) -> BrokerOptions:
            known = ";".join(server.for_brokers for server in names)
            chosen = {"listen_port": port or values["listen_port"], "namesrv_addr": known}
            return BrokerOptions(**{**values, **chosen})

        name = str(values["broker_name"])
        runner: Runner
        disk: DiskFaults | None = None
        if self.processes:
            runner = process = self._process(name, "broker", options)
            disk = DiskOfProcess(process) if self.faults else None
        elif self.faults:
            disk = native = _core.Disk()
            runner = InThisProcess(name, lambda port: FaultyBroker(native, options(port)))
        else:
            runner = InThisProcess(name, lambda port: Broker(options(port)))
        return ClusterBroker(
            name,
            runner,
            str(values["bind_address"]),
            links,
            Path(str(values["store_path_root_dir"])),
            None if disk is None else Disk(disk),
        )

    def _process(self, name: str, kind: str, options: MakeOptions) -> InOwnProcess:
        return InOwnProcess(
            name,
            kind,
            options,
            self.folder / f"{name}.log",
            faults=self.faults and kind == "broker",
            temporary=self.folder if self.temporary else None,
        )


def _suffix(number: int) -> str:
    """The first has the plain name, so several brokers find the store that one has left."""
    return "" if number == 0 else f"-{ascii_lowercase[number]}"
