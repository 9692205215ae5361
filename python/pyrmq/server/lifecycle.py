"""The life cycle of a server: start, health, and a stop that drains.

Order of a stop: the port closes, clients that support it are asked to go away, requests in progress
are answered within the timeout, the core flushes and closes, the workers end. `stop` may be called
any number of times, from any thread, from a signal handler and from `atexit`. An interrupt during a
stop skips the drain, never the flush.
"""

from __future__ import annotations

import atexit
import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from pyrmq.config import Options
from pyrmq.config.option import check_names
from pyrmq.errors import ClosedError, ConfigError, ForkError, RmqError
from pyrmq.server.processors import Processors, Workers
from pyrmq.server.security.revoked import revoked_certificates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq import _core
    from pyrmq.server.metrics import Family, MetricsServer
    from pyrmq.server.security.plain_acl import AclFiles
    from pyrmq.server.security.users import UserFile

OptionsT = TypeVar("OptionsT", bound=Options)
CoreT = TypeVar("CoreT", bound=Any)

DRAIN_SECONDS = 10.0
_WORKERS = 2
_WORKER_JOIN_SECONDS = 5.0


class Server(ABC, Generic[OptionsT, CoreT]):
    """The base class of the name server and the broker.

    A stopped server may be started again; it is then a new server with the same options.
    """

    kind: ClassVar[type[Options]]
    thread_name: ClassVar[str]

    def __init__(self, options: OptionsT | None = None, **values: object) -> None:
        if options is None:
            check_names(self.kind, values)
            self._options: OptionsT = self.kind(**values)  # type: ignore[assignment]
        else:
            self._options = options.with_values(**values) if values else options
        self.config_file: str | os.PathLike[str] | None = None
        # Options that were set with precedence over the file: `reload` does not change them.
        self.overridden: frozenset[str] = frozenset()
        # Held while options change: they, the core and the property file change together.
        self.changing = threading.RLock()
        self.users: UserFile | None = None
        self.acl: AclFiles | None = None
        self.processors = Processors(self.kind.role, native=self._native_rows())
        self._core: CoreT | None = None
        self._workers: Workers | None = None
        self._metrics: MetricsServer | None = None
        self._security: _core.ServerSecurity | None = None
        self._pid = os.getpid()
        # Guards start and stop; `_busy` is the thread that is in one of them. A signal handler may
        # interrupt either at any step: a lock that is not reentrant would deadlock.
        self._lock = threading.RLock()
        self._busy: int | None = None
        self._stop_wanted = self._was_stopped = False

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **values: object) -> Self:
        """Make a server from one of Apache's property files.

        `reload` reads the file again, and changes of options at run time are written into it.

        Args:
            path: the file, as Apache's `-c` takes it.
            values: options that override it.

        Raises:
            ConfigError: the file cannot be read, or a value is wrong.

        Example:
            >>> Broker.from_file("broker.conf", listen_port=0)  # doctest: +SKIP
        """
        from pyrmq.server.load import load

        options = load(cls.kind, path)
        server = cls(options.with_values(**values))  # type: ignore[arg-type]
        server.config_file, server.overridden = path, frozenset(values)
        return server

    def reload(self, path: str | os.PathLike[str] | None = None) -> None:
        """Read the property file again and apply its changes: all of them, or none.

        Options from `from_file`, the command line or the environment keep their values.

        Args:
            path: the file. Default: the one of `from_file`.

        Raises:
            ConfigError: there is no file, a value is wrong, or an option changed that can only be
                set at the start; nothing was changed.
            OSError: a name server's `config_store_path` cannot be written; nothing was changed.

        Example:
            >>> server.reload()  # doctest: +SKIP
        """
        from pyrmq.server.options.runtime import file_changes

        file = self.config_file if path is None else path
        if file is None:
            raise ConfigError("there is no file to reload: give its path, or use from_file()")
        with self.changing:
            changed = file_changes(self._options, file, but=self.overridden)
            if changed:
                self._apply(self._options.with_values(**changed))

    @property
    def options(self) -> OptionsT:
        """The options in force."""
        return self._options

    @property
    def core(self) -> CoreT:
        """The native server.

        Raises:
            ClosedError: it is not running.
            ForkError: it runs in the parent process.
        """
        core = self._core
        if core is None:
            raise ClosedError(f"the {self.kind.role} is not running: call start() first")
        self._check_process()
        return core

    @property
    def address(self) -> str:
        """The address for clients, as `host:port`, with the real port if the option says 0.

        Raises:
            ClosedError: it is not running.
            ForkError: it runs in the parent process.
        """
        return str(self.core.address)

    def health(self) -> dict[str, Any]:
        """Return its health. `status` is `new`, `running`, `stopping` or `stopped`.

        Raises:
            ForkError: it runs in the parent process.
        """
        core = self._core
        if core is None:
            return {"status": "stopped" if self._was_stopped else "new"}
        self._check_process()
        state = "running" if self._busy is None else "stopping"
        return {"status": state, **core.health(), **revoked_certificates(self._security)}

    def start(self) -> Self:
        """Open the port and serve; returns when it is ready.

        Raises:
            ConfigError: an option cannot be used on this machine.
            RmqError: the port is taken, the store is locked or cannot be used.
            ForkError: it runs in the parent process.
        """
        with self._lock:
            self._busy, self._stop_wanted = threading.get_ident(), False
            try:
                if self._core is not None:
                    self._check_process()
                    return self
                self._start()
            finally:
                self._busy = None
        if self._stop_wanted:
            self.stop(0)
        return self

    def stop(self, timeout: float = DRAIN_SECONDS) -> None:
        """Stop serving; returns when everything is flushed and closed.

        Args:
            timeout: seconds for requests in progress. While another stop runs, a call with 0 ends
                that stop's drain; every call waits for it.

        Raises:
            RmqError: it has stopped, but could not write everything; the text says what.
        """
        if self._pid != os.getpid():
            return
        # More than a century is no limit.
        wait_ms = int(max(0.0, min(timeout, 1e10)) * 1000)
        if self._busy is not None:
            # A start or stop is in progress; if a signal handler interrupted it, in this thread.
            self._stop_wanted = True
            if timeout <= 0:
                self.hurry()
            if self._busy == threading.get_ident():
                return
        with self._lock:
            self._busy = threading.get_ident()
            try:
                core = self._core
                if core is not None:
                    self._stop(core, wait_ms)
            finally:
                self._busy = None

    def secure(self, cluster: str) -> _core.ServerSecurity:
        """Read users, policies, certificates and keys, and watch their files."""
        from pyrmq.server.security.protection import protection

        self.users, self.acl, self._security = protection(self.kind.role, self._options, cluster)
        return self._security

    def hurry(self) -> None:
        """End the drain of a running stop; acknowledged messages are still flushed."""
        core = self._core
        if core is not None and self._pid == os.getpid():
            core.hurry()

    def _start(self) -> None:
        from pyrmq._client import log

        self.processors.seal()
        log.acquire()
        try:
            core = self._start_core()
        except BaseException:
            log.release()
            self.processors.unseal()
            raise
        self._core, self._pid = core, os.getpid()
        self._workers = Workers(
            core.requests, self.processors, name=self.thread_name, count=_WORKERS
        )
        self._workers.start()
        for files in (self.users, self.acl):
            if files is not None:
                files.watch()
        atexit.register(self.stop)

    def _open_metrics(self, host: str | None, port: int) -> None:
        """Open the metrics port, if one is configured; stop the server if that fails."""
        if not port:
            return
        from pyrmq.server.metrics import MetricsServer
        from pyrmq.server.security.tls import metrics_tls

        try:
            self._metrics = MetricsServer(self, host, port, metrics_tls(self._options))
        except BaseException:
            self._stop(self.core, 0)
            raise

    def _stop(self, core: CoreT, wait_ms: int) -> None:
        from pyrmq._client import log

        failure: RmqError | KeyboardInterrupt | None = None
        core.begin_stop()
        while True:
            try:
                if core.wait_stopped(wait_ms):
                    break
            except KeyboardInterrupt as pressed:
                failure = pressed
            except RmqError as error:
                # It has ended, but not everything could be flushed or closed.
                failure = error
                break
            core.hurry()
            wait_ms = 1000
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
        for files in (self.users, self.acl):
            if files is not None:
                files.close()
        if self._workers is not None:
            self._workers.stop(_WORKER_JOIN_SECONDS)
        self._workers = self._core = None
        self._was_stopped = True
        self.processors.unseal()
        log.release()
        atexit.unregister(self.stop)
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._core is None else f"on {self._core.address}"
        return f"<pyrmq.{type(self).__name__} {state}>"

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ForkError(
                f"the {self.kind.role} was started in process {self._pid} and cannot be used in "
                f"its forked child {os.getpid()}: start a new one there"
            )

    @abstractmethod
    def figures(self) -> Iterable[Family]:
        """Every metric with its current values, as the metrics port shows them."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether clients may be sent here."""

    @abstractmethod
    def _native_rows(self) -> list[int]:
        """The request codes that Rust answers."""

    @abstractmethod
    def _apply(self, options: OptionsT) -> None:
        """Apply these options to the running server."""

    @abstractmethod
    def _start_core(self) -> CoreT:
        """Start the native server on the options in force."""
