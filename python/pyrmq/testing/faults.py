"""Faults to inject into a server of a cluster: into its network and its disk.

With `cluster(faults=True)` each server has a `.network` and each broker a `.disk`. A fault takes
effect when its call returns, for new and existing connections, until `heal()`. Faults add up. Each
call returns the network or disk, so a `with` statement can end the fault:

    >>> from pyrmq.testing import cluster
    >>> with cluster(brokers=2, faults=True) as rocketmq:
    ...     with rocketmq.brokers[0].network.delay(0.2):
    ...         pass  # every answer of the first broker takes 0.2 s longer
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, Protocol, Self

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq import _core

Direction = Literal["requests", "answers", "both"]
"""Which bytes: those to the server, those from it, or all."""

_MICROS = 1_000_000


class _Faults(ABC):
    @abstractmethod
    def heal(self) -> None:
        """End all faults."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


class Network(_Faults):
    """The network between clients and one server.

    Brokers reach their name servers directly, so only clients see these faults.
    """

    def __init__(self, links: Sequence[_core.Link]) -> None:
        self._links = links
        self._refuses = False
        self._is_down = False

    def delay(self, seconds: float, *, direction: Direction = "both") -> Self:
        """Delay everything. The bytes per second stay the same.

        Args:
            seconds: the delay, of each direction.
            direction: `answers` for a server that answers late.

        Raises:
            ConfigError: an argument cannot be used.
        """
        micros = _micros("seconds", seconds)
        for link in self._links:
            link.delay(direction, micros)
        return self

    def slow(self, bytes_per_second: int, *, direction: Direction = "both") -> Self:
        """Limit each connection to `bytes_per_second`, in each direction.

        Raises:
            ConfigError: an argument cannot be used.
        """
        if bytes_per_second < 1:
            raise ConfigError(f"`bytes_per_second` is 1 or more: {bytes_per_second!r}")
        for link in self._links:
            link.rate(direction, bytes_per_second)
        return self

    def silence(self, *, direction: Direction = "both") -> Self:
        """Hold everything back while connections stay open, as when a cable is pulled.

        It arrives after `heal()`.

        Args:
            direction: `requests` or `answers` for a fault in one direction only.
        """
        for link in self._links:
            link.hold(direction)
        return self

    def lose(self, *, direction: Direction = "answers") -> Self:
        """Discard bytes. With `answers`, the server handles requests and clients get no answer.

        `heal()` resets the connections, whose byte streams are broken.
        """
        for link in self._links:
            link.lose(direction)
        return self

    def cut(self) -> Self:
        """Reset every connection, once; new ones work."""
        for link in self._links:
            link.cut()
        return self

    def refuse(self) -> Self:
        """Reset every connection and refuse new ones."""
        self._refuses = True
        self._update_links()
        return self

    def busy(self, seconds: float) -> Self:
        """Answer every send with SYSTEM_BUSY for `seconds`; it does not reach the broker.

        Raises:
            ConfigError: an argument cannot be used.
        """
        millis = _micros("seconds", seconds) // 1000
        for link in self._links:
            link.busy(millis)
        return self

    def heal(self) -> None:
        """End all faults. Bytes that were held back arrive; lost ones do not."""
        self._refuses = False
        for link in self._links:
            link.heal()
        self._update_links()

    def set_down(self, *, down: bool) -> None:
        """Set whether the server is down: then connections are refused."""
        self._is_down = down
        self._update_links()

    def _update_links(self) -> None:
        for link in self._links:
            link.refuse(self._refuses or self._is_down)


class DiskFaults(Protocol):
    """The disk that has the faults."""

    def full(self, free_bytes: int) -> None:
        """Be full after `free_bytes` more."""

    def slow(self, micros: int) -> None:
        """Make each write and fsync slower by `micros` microseconds."""

    def fail_writes(self) -> None:
        """Let writes fail."""

    def fail_syncs(self) -> None:
        """Let every fsync fail."""

    def fail_reads(self) -> None:
        """Let reads fail."""

    def heal(self) -> None:
        """End all faults."""


class Disk(_Faults):
    """The disk of one broker's store. Its faults survive a restart of the broker.

    Attributes:
        was_wrong: whether it was ever full or failing: the broker may not stop cleanly then.
    """

    def __init__(self, faults: DiskFaults) -> None:
        self._faults = faults
        self.was_wrong = False

    def full(self, free_bytes: int = 0) -> Self:
        """Fail writes with "no space left" after `free_bytes` more.

        Raises:
            ConfigError: an argument cannot be used.
        """
        if free_bytes < 0:
            raise ConfigError(f"`free_bytes` is 0 or more: {free_bytes!r}")
        self.was_wrong = True
        self._faults.full(free_bytes)
        return self

    def slow(self, seconds: float) -> Self:
        """Let each write and each fsync take `seconds` longer.

        Raises:
            ConfigError: an argument cannot be used.
        """
        self._faults.slow(_micros("seconds", seconds))
        return self

    def fail_writes(self) -> Self:
        """Fail every write, and every other change of files, with an I/O error."""
        self.was_wrong = True
        self._faults.fail_writes()
        return self

    def fail_syncs(self) -> Self:
        """Fail every fsync with an I/O error: written bytes are readable, but not durable."""
        self.was_wrong = True
        self._faults.fail_syncs()
        return self

    def fail_reads(self) -> Self:
        """Fail every read with an I/O error."""
        self.was_wrong = True
        self._faults.fail_reads()
        return self

    def heal(self) -> None:
        """End all faults. A store that has failed stays failed until its broker restarts."""
        self._faults.heal()


def _micros(name: str, seconds: float) -> int:
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ConfigError(f"`{name}` is a number from 0 to {_MAX_SECONDS:,}: {seconds!r}")
    return int(seconds * _MICROS)


_MAX_SECONDS = 86_400
