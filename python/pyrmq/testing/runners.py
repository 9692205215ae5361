"""Runners of a cluster's servers: in this process here, in separate processes in process.py."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyrmq.errors import ClosedError, ConfigError
from pyrmq.nameserver.server import NameServer
from pyrmq.server.lifecycle import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ServerT = TypeVar("ServerT", bound=Server[Any, Any])


class Runner(Protocol):
    """Runs one server, in this process or in its own."""

    @property
    def running(self) -> bool:
        """Whether the server runs."""

    def start(self, port: int) -> str:
        """Start it on this port, 0 for a free one; return its address."""

    def stop(self, timeout: float) -> None:
        """Stop it cleanly."""

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""

    def health(self) -> dict[str, Any]:
        """Its state."""

    def broker_names(self) -> set[str]:
        """The brokers that a name server knows."""


class InThisProcess(Generic[ServerT]):
    """Runs a server as an object of this process.

    Args:
        name: of the server, for error texts.
        make: makes the server for a port.
    """

    def __init__(self, name: str, make: Callable[[int], ServerT]) -> None:
        self._name = name
        self._make = make
        self._server: ServerT | None = None
        self.running = False

    @property
    def server(self) -> ServerT:
        """The server; the last one if it is stopped.

        Raises:
            ClosedError: it was never started.
        """
        if self._server is None:
            raise ClosedError(f"{self._name} was never started")
        return self._server

    def start(self, port: int) -> str:
        """Start a new server object; the stopped one is unchanged."""
        self._server = server = self._make(port)
        server.start()
        self.running = True
        return server.address

    def stop(self, timeout: float) -> None:
        """Stop it cleanly."""
        try:
            self.server.stop(timeout)
        finally:
            self.running = False

    def kill(self) -> None:
        """Raise, because it cannot be killed.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{self._name} runs inside this process and cannot be killed: use "
            "cluster(processes=True), or stop() for a clean end"
        )

    def health(self) -> dict[str, Any]:
        """Its state."""
        return self.server.health()

    def broker_names(self) -> set[str]:
        """The brokers that a name server knows."""
        assert isinstance(self.server, NameServer)
        return {broker.name for broker in self.server.brokers()}


def side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Make calls at the same time, each waiting for its own disk; the first error is raised."""
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            failures.append(error)

    threads = [Thread(target=run, args=(call,)) for call in calls[1:]]
    for thread in threads:
        thread.start()
    try:
        for call in calls[:1]:
            run(call)
        for thread in threads:
            thread.join()
    except BaseException:
        # Interrupted: wait for the starts under way, because the servers are stopped next.
        for thread in threads:
            thread.join()
        raise
    if failures:
        raise failures[0]
