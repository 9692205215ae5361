"""The servers of a cluster. Each can be stopped and started again on its own address."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from pyrmq.broker.server import Broker
from pyrmq.errors import ClosedError, ConfigError, ServerError
from pyrmq.nameserver.server import NameServer
from pyrmq.testing.faults import Disk, Network
from pyrmq.testing.ports import FAST_DISTANCE, HOST, OUTSIDE, Ports, free_pair
from pyrmq.testing.process import InOwnProcess
from pyrmq.testing.runners import InThisProcess, Runner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyrmq import _core

_POLL_SECONDS = 0.002


class _Member(ABC):
    """A server of a cluster, and its address, which stays the same over all restarts.

    Attributes:
        name: of the server: the broker name, or `namesrv-a` for the first name server.
    """

    def __init__(self, name: str, runner: Runner, host: str, links: _core.Links | None) -> None:
        self.name = name
        self._runner = runner
        self._host = host
        self._links = links
        self._network: Network | None = None
        self._ports = Ports()
        self._port = 0
        self._address = ""
        self._others: Sequence[_Member] = ()

    @property
    def address(self) -> str:
        """The address for clients, as `host:port`, also while it is stopped."""
        return self._address

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._runner.running

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it has no separate process or is stopped."""
        return self._runner.pid if isinstance(self._runner, InOwnProcess) else None

    @property
    def network(self) -> Network:
        """The faults of the network between it and clients.

        Raises:
            ConfigError: the cluster was made without `faults=True`.
        """
        if self._network is None:
            raise ConfigError(f"{self.name} is reached directly: {_NO_FAULTS}")
        return self._network

    def start(self) -> None:
        """Start it again on its address and its files, and wait until it is registered.

        A broker is known to every name server that runs, a name server knows every broker that
        runs. Does nothing if it is running.

        Raises:
            ServerError: it cannot start, or is not registered within ten seconds.
        """
        if self.running:
            return
        self.begin()
        self.await_registration()

    def stop(self, timeout: float = 1.0) -> None:
        """Stop it cleanly, if it runs; its files stay, connections are refused.

        Args:
            timeout: seconds that requests under way get.
        """
        if self.running:
            try:
                self._runner.stop(timeout)
            finally:
                self._hold()

    def kill(self) -> None:
        """End it as `kill -9` does, if it runs: nothing is flushed or announced.

        Raises:
            ConfigError: it runs inside this process; `cluster(processes=True)` gives it one of
                its own.
        """
        self._runner.kill()
        self._hold()

    def health(self) -> dict[str, Any]:
        """Its state: `status` is `running` or `stopped`, the rest is the server's own health."""
        return self._runner.health() if self.running else {"status": "stopped"}

    def begin(self) -> None:
        """Start it without waiting for the others."""
        self._ports.release()
        # Links are opened at the first start and stay open.
        links = self._links if self._network is None else None
        if links is not None:
            self._port = self._port_behind_links()
        try:
            own = self._runner.start(self._port)
        except BaseException:
            self._hold()
            raise
        self._port = int(own.rpartition(":")[2])
        if links is not None:
            self._network = Network(self._open(links))
        if self._network is None:
            self._address = own
        else:
            self._network.set_down(down=False)

    def await_registration(self, timeout: float = 10.0) -> None:
        """Wait until name servers and brokers that run know each other."""
        until = monotonic() + timeout
        while waits := self._waits_for():
            if monotonic() > until:
                raise ServerError(f"{self.name} is not ready within {timeout:g} s: {waits}")
            sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Stop it permanently."""
        try:
            if self.pid is not None:
                # A process that the test has paused with a signal could not answer.
                os.kill(self.pid, signal.SIGCONT)
            self._heal()
            self.stop(0.0)
        finally:
            self._ports.release()

    def meet(self, others: Sequence[_Member]) -> None:
        """Set the servers that it must register with, or that must register with it."""
        self._others = others

    @abstractmethod
    def _heal(self) -> None:
        """End the faults that could delay the server's end."""

    @abstractmethod
    def _waits_for(self) -> str:
        """The missing registrations, as text; empty if there is none."""

    @abstractmethod
    def _open(self, links: _core.Links) -> list[_core.Link]:
        """Open the links to the running server, and set the address that clients use."""

    def _port_behind_links(self) -> int:
        """The port to start on behind links; 0 for a free one."""
        return 0

    def _hold(self) -> None:
        if self._port:
            self._ports.hold(self._host, self._port, *self._more_ports())
        if self._network is not None:
            self._network.set_down(down=True)

    def _more_ports(self) -> tuple[int, ...]:
        return ()

    def __repr__(self) -> str:
        state = "running" if self.running else "stopped"
        return f"<{type(self).__name__} {self.name} at {self._address}, {state}>"


class ClusterBroker(_Member):
    """One broker of a cluster.

    Attributes:
        name: the broker name.
        store: its store directory.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        host: str,
        links: _core.Links | None,
        store: Path,
        disk: Disk | None,
    ) -> None:
        super().__init__(name, runner, host, links)
        self.store = store
        self._disk = disk

    @property
    def disk(self) -> Disk:
        """The faults of the disk of its store.

        Raises:
            ConfigError: the cluster was made without `faults=True`.
        """
        if self._disk is None:
            raise ConfigError(f"{self.name} uses the real disk: {_NO_FAULTS}")
        return self._disk

    @property
    def server(self) -> Broker:
        """The broker itself.

        Raises:
            ClosedError: it was stopped.
            ConfigError: it runs in a separate process.
        """
        if not isinstance(self._runner, InThisProcess):
            raise ConfigError(f"{self.name} runs in a separate process: {_NO_OBJECT}")
        if not self.running:
            raise ClosedError(
                f"the cluster's broker {self.name} is stopped: call start_broker() first, or "
                "start() of this broker"
            )
        server = self._runner.server
        assert isinstance(server, Broker)
        return server

    def _waits_for(self) -> str:
        names = sum(other.running for other in self._others)
        known = int(self._runner.health()["registered"])
        return "" if known >= names else f"{known} of {names} name servers know it"

    def stop(self, timeout: float = 1.0) -> None:
        """Stop it cleanly, if it runs; its store stays, connections are refused.

        Writes that failed because of a full or failing disk are not an error here.

        Args:
            timeout: seconds that requests under way get.

        Raises:
            ServerError: it has stopped, but not everything could be written.
        """
        try:
            super().stop(timeout)
        except ServerError:
            if self._disk is None or not self._disk.was_wrong:
                raise

    def _heal(self) -> None:
        if self._disk is not None:
            self._disk.heal()

    def _port_behind_links(self) -> int:
        # Its links have the same port on another address.
        return free_pair()

    def _open(self, links: _core.Links) -> list[_core.Link]:
        ports = (self._port, *self._more_ports())
        self._address = f"{OUTSIDE}:{self._port}"
        return [links.open(f"{OUTSIDE}:{port}", f"{HOST}:{port}") for port in ports]

    def _more_ports(self) -> tuple[int, ...]:
        return (self._port - FAST_DISTANCE,)


class ClusterNameServer(_Member):
    """One name server of a cluster.

    Attributes:
        name: `namesrv-a` for the first; only this cluster uses it.
    """

    @property
    def server(self) -> NameServer:
        """The name server itself, also while it is stopped.

        Raises:
            ConfigError: it runs in a separate process.
        """
        if not isinstance(self._runner, InThisProcess):
            raise ConfigError(f"{self.name} runs in a separate process: {_NO_OBJECT}")
        server = self._runner.server
        assert isinstance(server, NameServer)
        return server

    @property
    def for_brokers(self) -> str:
        """The address for brokers, as `host:port`, without the faults of its network."""
        return f"{HOST}:{self._port}"

    def _heal(self) -> None:
        """Do nothing: a name server has no disk with faults."""

    def _waits_for(self) -> str:
        wanted = {other.name for other in self._others if other.running}
        missing = wanted - self._runner.broker_names() if wanted else wanted
        return f"it does not know {', '.join(sorted(missing))}" if missing else ""

    def _open(self, links: _core.Links) -> list[_core.Link]:
        link = links.open(f"{HOST}:0", self.for_brokers)
        self._address = link.address
        return [link]


_NO_OBJECT = "there is no object of it here; use .address and .health(), or processes=False"
_NO_FAULTS = "use cluster(faults=True) to inject faults"
