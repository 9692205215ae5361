"""The broker's Python side: options, native core, control plane handlers."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, ClassVar

from pyrmq import _core
from pyrmq._client import log
from pyrmq.broker.advertised import unreachable
from pyrmq.broker.processor import acl, auth, config, status
from pyrmq.config import BrokerOptions
from pyrmq.errors import RmqError, ServerError
from pyrmq.server.files import expanded
from pyrmq.server.lifecycle import Server
from pyrmq.server.security.keys import PYTHON_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pyrmq.broker.metrics import Figures
    from pyrmq.server.metrics import Family

_FAMILIES = (acl, auth, config, status)
_STORE = "~/store"
_ACL_KEYS = ("aclEnable", "rocketmqHome", "rocketmq.acl.plain.file")
_OF_PYTHON = ("logLevel", "configBlackList", "metricsPort", "metricsTop", *_ACL_KEYS)
_POLL_SECONDS = 0.002
_FIRST_ROUND_SECONDS = 2.0
"""Seconds that a start waits for a silent name server; one that refuses causes no delay."""


class Broker(Server[BrokerOptions, "_core.Broker"]):
    """A broker in this process.

    Options are keywords with Apache's property names in snake_case; `BrokerOptions` in
    `pyrmq.config` lists them with default, unit and range.

    Args:
        options: all options at once; keywords override it.
        values: single options.

    Raises:
        ConfigError: an unknown option or a wrong value.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as store:
        ...     with Broker(listen_port=0, store_path_root_dir=store) as server:
        ...         server.health()["status"]
        'running'
    """

    kind: ClassVar[type[BrokerOptions]] = BrokerOptions
    thread_name: ClassVar[str] = "pyrmq-broker"

    def __init__(self, options: BrokerOptions | None = None, **values: object) -> None:
        super().__init__(options, **values)
        self.changes = 0
        self.began = monotonic()
        self.start_seconds = 0.0
        self._figures: Figures | None = None
        for family in _FAMILIES:
            self.processors.add(family.rows(self))

    @property
    def store(self) -> Path:
        """The directory of the store."""
        from pathlib import Path

        return Path(self._root())

    def reconfigure(self, values: Mapping[str, object]) -> None:
        """Change options of the running broker, as request code 25 does.

        The changes are also written to the property file of `from_file` (`-c` of the command), so
        they survive a restart. Without such a file they last until the broker stops.

        Args:
            values: option names with their new values; only options that are `live`.

        Raises:
            ConfigError: a value is wrong, or an option can only be set at the start.
            OSError: the property file cannot be written; nothing was changed.
            ServerError: the topics' file cannot be written; nothing was changed.

        Example:
            >>> broker.reconfigure({"broker_permission": 4})  # doctest: +SKIP
        """
        from pyrmq.server.options.runtime import check_live

        with self.changing:
            check_live(self._options, values)
            before = self._options
            self._apply(before.with_values(**values))
            self._keep(before)

    def _apply(self, options: BrokerOptions) -> None:
        self.core.reconfigure(self._pairs(options))
        if options.log_level != self._options.log_level:
            log.set_level(options.log_level)
        self._options = options
        self.changes += 1

    def _keep(self, before: BrokerOptions) -> None:
        """Write the changes into the property file; undo them if that fails."""
        from pathlib import Path

        from pyrmq.server.files import write_synced
        from pyrmq.server.options.properties import amended, decode

        old, new = before.to_properties(), self._options.to_properties()
        changed = {key: text for key, text in new.items() if old.get(key) != text}
        if self.config_file is None or not changed:
            return
        try:
            text = decode(Path(self.config_file).read_bytes())
            write_synced(self.config_file, amended(text, changed).encode())
        except (RmqError, OSError):
            self._apply(before)
            raise

    def figures(self) -> Iterable[Family]:
        """Every metric with its current values, as the metrics port shows them.

        Raises:
            ClosedError: it is not running.

        Example:
            >>> next(iter(broker.figures())).name  # doctest: +SKIP
            'pyrmq_broker_ready'
        """
        from pyrmq.broker.metrics import Figures

        if self._figures is None:
            self._figures = Figures(self)
        return self._figures.read()

    def ready(self) -> bool:
        """Whether clients may be sent here: it serves, stores, and a name server knows it.

        Example:
            >>> Broker(listen_port=0).ready()
            False
        """
        try:
            health = self.health()
        except RmqError:
            return False
        if health["status"] != "running" or health["store"]["read_only"] is not None:
            return False
        return bool(health["registered"] > 0 or health["name_servers"] == 0)

    def await_registration(self, timeout: float = 10.0) -> None:
        """Wait until a name server knows this broker, so that clients find it.

        Args:
            timeout: maximum wait in seconds.

        Raises:
            ServerError: no name server has answered in that time.
            ClosedError: the broker does not run.
        """
        until = monotonic() + timeout
        while self.health()["registered"] == 0:
            if monotonic() > until:
                raise ServerError(
                    f"the broker at {self.address} could not register within {timeout:g} s: "
                    f"the name server at {self._options.namesrv_addr} did not answer"
                )
            sleep(_POLL_SECONDS)

    def _start(self) -> None:
        if self._options.log_level is not None:
            log.set_level(self._options.log_level)
        begin = monotonic()
        super()._start()
        self.began = monotonic()
        self.start_seconds = self.began - begin
        core = self.core
        try:
            # As in Apache's broker: a program that creates a topic right after the start finds it.
            core.await_first_round(_FIRST_ROUND_SECONDS)
        except BaseException:
            self._stop(core, 0)
            raise
        self._figures = None
        why = unreachable(core.address, self._options.namesrv_addr)
        if why is not None:
            log.get("pyrmq.broker").warning(
                "the address %s is registered at the name servers for clients: %s. Fix: set "
                "brokerIP1 (--broker-ip1) to an address that they reach",
                core.address,
                why,
            )
        self._open_metrics(self._options.bind_address, self._options.metrics_port)

    def _native_rows(self) -> list[int]:
        return [code for code, kind, _ in _core.broker_rows() if kind == "native"]

    def _start_core(self) -> _core.Broker:
        security = self.secure(self._options.broker_cluster_name)
        pairs = self._pairs(self._options)
        return _core.Broker.start(pairs, self.processors.codes, security)

    def _pairs(self, options: BrokerOptions) -> list[tuple[str, str]]:
        """The options for the core: all but those that only Python uses."""
        pairs = {**options.to_properties(), "storePathRootDir": self._root()}
        for key in (*_OF_PYTHON, *PYTHON_ONLY):
            pairs.pop(key, None)
        directory = options.store_path_commit_log
        if directory is not None:
            pairs["storePathCommitLog"] = expanded(directory)
        return list(pairs.items())

    def _root(self) -> str:
        return expanded(self._options.store_path_root_dir or _STORE)
