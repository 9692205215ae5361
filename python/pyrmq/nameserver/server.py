"""The name server's Python side: options, native core, control plane handlers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from pyrmq import _core
from pyrmq.config import NameServerOptions
from pyrmq.errors import RmqError
from pyrmq.nameserver.kv_config import KvConfig
from pyrmq.nameserver.processor import brokers, config, kv, status, topics
from pyrmq.server.files import expanded, write_synced
from pyrmq.server.lifecycle import Server

# Modules that a start does not need are imported where they are used: a start takes milliseconds.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyrmq.nameserver.views import LiveBroker, Route
    from pyrmq.server.metrics import Family

_FAMILIES = (brokers, config, kv, status, topics)
_KV_CONFIG = "~/namesrv/kvConfig.json"


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
        # Apache's options without effect that were set; None until they are requested.
        self._idle: dict[str, str] | None = None
        for family in _FAMILIES:
            self.processors.add(family.rows(self))

    def brokers(self) -> tuple[LiveBroker, ...]:
        """Every live broker, by cluster, name and id.

        Raises:
            ClosedError: it is not running.

        Example:
            >>> with NameServer(listen_port=0) as server:
            ...     server.brokers()
            ()
        """
        from pyrmq.nameserver.views import live_broker

        return tuple(live_broker(seen) for seen in self.core.brokers())

    def topics(self) -> tuple[str, ...]:
        """Every topic that a broker has, sorted.

        Raises:
            ClosedError: it is not running.

        Example:
            >>> with NameServer(listen_port=0) as server:
            ...     server.topics()
            ()
        """
        return tuple(self.core.topics())

    def route(self, topic: str) -> Route | None:
        """The route of a topic, as clients get it; None if no broker has the topic.

        Raises:
            ClosedError: it is not running.

        Example:
            >>> with NameServer(listen_port=0) as server:
            ...     server.route("orders") is None
            True
        """
        from pyrmq.nameserver.views import route

        body = self.core.route(topic)
        return None if body is None else route(topic, body)

    def figures(self) -> Iterable[Family]:
        """Every metric with its current values, as the metrics port shows them.

        Raises:
            ClosedError: it is not running.

        Example:
            >>> with NameServer(listen_port=0) as server:
            ...     next(iter(server.figures())).name
            'pyrmq_nameserver_ready'
        """
        from pyrmq.nameserver.metrics import figures

        return figures(self)

    def ready(self) -> bool:
        """Whether clients may be sent here: it serves, and no longer waits for its brokers.

        Example:
            >>> NameServer(listen_port=0).ready()
            False
        """
        try:
            if self.health()["status"] != "running":
                return False
            uptime_ms = self.core.uptime_ms()
        except RmqError:
            return False
        wait_ms = self._options.wait_seconds_for_service * 1000
        return not (self._options.need_wait_for_service and uptime_ms < wait_ms)

    def reconfigure(
        self, values: Mapping[str, object], *, idle: Mapping[str, str] | None = None
    ) -> None:
        """Change options of the running server, as request code 318 does.

        The changes are written to the property file of `from_file`, so they survive a restart; its
        other lines stay unchanged. Several threads may call it.

        Args:
            values: option names with their new values; only options that are `live`.
            idle: Apache's options without effect here, by Apache's names; they are stored.

        Raises:
            ConfigError: a value is wrong, an option can only be set at the start, or the property
                file cannot be read; nothing was changed.
            OSError: the file or `config_store_path` cannot be written; nothing was changed.

        Example:
            >>> with NameServer(listen_port=0) as server:
            ...     server.reconfigure({"enable_topic_list": False})
            ...     server.options.enable_topic_list
            False
        """
        from pyrmq.server.options.runtime import check_live

        with self.changing:
            check_live(self._options, values)
            options = self._options.with_values(**values)
            properties = options.to_properties()
            names = {item.name: item.apache for item in options.fields}
            self._keep(
                {
                    **{names[name]: properties.get(names[name], "") for name in values},
                    **(idle or {}),
                }
            )
            self._apply(options)
            self._idle = {**self._idle_options(), **(idle or {})}

    def properties(self) -> dict[str, str]:
        """Every option as request code 319 returns it: first those with effect, then the others.

        Example:
            >>> NameServer(listen_port=0).properties()["productEnvName"]
            'center'
        """
        from pyrmq.nameserver import idle

        with self.changing:
            paths = {"kvConfigPath": expanded(self._options.kv_config_path or _KV_CONFIG)}
            if self.config_file is not None:
                paths["configStorePath"] = os.path.abspath(self.config_file)  # noqa: PTH100 - see expanded
            return {
                **paths,
                **self._options.to_properties(),
                **idle.DEFAULTS,
                **self._idle_options(),
            }

    def _idle_options(self) -> dict[str, str]:
        """Apache's options without effect that the file or a request has set."""
        from pyrmq.nameserver import idle
        from pyrmq.server.options.properties import read

        if self._idle is None:
            self._idle = {} if self.config_file is None else idle.given(read(self.config_file))
        return self._idle

    def _keep(self, changed: dict[str, str]) -> None:
        """Write changed options into the property file."""
        from pyrmq.server.options.properties import amended, read_text

        if self.config_file is not None and changed:
            text = amended(read_text(self.config_file), changed)
            write_synced(self.config_file, text.encode())

    def _apply(self, options: NameServerOptions) -> None:
        from pyrmq.server.options.properties import write

        pairs = options.to_properties()
        if options.config_store_path is not None:
            write_synced(expanded(options.config_store_path), write(pairs).encode())
        self.core.reconfigure(list(pairs.items()))
        self._options = options

    def _start(self) -> None:
        super()._start()
        self._open_metrics(self._options.bind_address, self._options.metrics_port)

    def _native_rows(self) -> list[int]:
        return [code for code, kind, _ in _core.name_server_rows() if kind == "native"]

    def _start_core(self) -> _core.NameServer:
        path = self._options.kv_config_path or _KV_CONFIG
        self.kv_config = KvConfig(expanded(path))
        # A name server serves clusters of any name; policies for its settings name none.
        security = self.secure("")
        pairs = list(self._options.to_properties().items())
        core = _core.NameServer.start(pairs, self.processors.codes, security)
        self.kv_config.watch_order(core.set_order_config)
        return core
