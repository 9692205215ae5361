"""The name server's life in Python: options, the core, the control plane's rows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from pyrmq import _core
from pyrmq.config import NameServerOptions
from pyrmq.nameserver.kv_config import KvConfig
from pyrmq.nameserver.processor import brokers, config, kv, topics
from pyrmq.server.files import write_synced
from pyrmq.server.lifecycle import Server
from pyrmq.server.properties import write

if TYPE_CHECKING:
    from collections.abc import Mapping

_FAMILIES = (brokers, config, kv, topics)


class NameServer(Server[NameServerOptions, "_core.NameServer"]):
    """A name server in this process.

    Options are keywords with Apache's property names in snake_case; `NameServerOptions` in
    `pyrmq.config` lists them with default, unit and range.

    Args:
        options: all options at once; keywords override it.
        values: single options.

    Raises:
        ConfigError: an unknown option or a wrong value.

    Example:
        >>> with NameServer(listen_port=0) as server:
        ...     server.health()["status"]
        'running'
    """

    kind: ClassVar[type[NameServerOptions]] = NameServerOptions
    thread_name: ClassVar[str] = "pyrmq-nameserver"

    def __init__(self, options: NameServerOptions | None = None, **values: object) -> None:
        super().__init__(options, **values)
        self.kv_config: KvConfig
        for family in _FAMILIES:
            self.processors.add(family.rows(self))

    @property
    def core(self) -> _core.NameServer:
        """The native server.

        Raises:
            ClosedError: it does not run.
            ForkError: it runs in the parent process.
        """
        return self._running()

    def reconfigure(self, values: Mapping[str, object]) -> None:
        """Change options of the running server, as request code 318 does.

        Args:
            values: option names with their new values; only options that are `live`.

        Raises:
            ConfigError: a value is wrong.
            OSError: `config_store_path` cannot be written; nothing was changed.
        """
        options = self._options.with_values(**values)
        if options.config_store_path is not None:
            path = _expanded(options.config_store_path)
            write_synced(path, write(options.to_properties()).encode())
        pairs = options.to_properties()
        self.core.reconfigure(list(pairs.items()))
        self._options = options

    def _native_rows(self) -> list[int]:
        return [code for code, kind, _ in _core.name_server_rows() if kind == "native"]

    def _start_core(self) -> _core.NameServer:
        path = self._options.kv_config_path or "~/namesrv/kvConfig.json"
        self.kv_config = KvConfig(_expanded(path))
        core = _core.NameServer.start(
            list(self._options.to_properties().items()), self.processors.codes
        )
        self.kv_config.watch_order(core.set_order_config)
        return core


def _expanded(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's import costs more than the start
