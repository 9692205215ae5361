"""Name server and broker in this process, on free ports, over a temporary store."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.broker.server import Broker
from pyrmq.errors import ClosedError
from pyrmq.nameserver.server import NameServer

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_HOST = "127.0.0.1"
_SEGMENT_BYTES = 64 * 1024 * 1024
_INDEX_SLOTS = 10_000
_INDEX_ENTRIES = 40_000


class Cluster:
    """A name server and a broker that run; made by `cluster`.

    Attributes:
        names: the name server itself.
        store: the broker's store directory.
    """

    def __init__(self, names: NameServer, store: Path, options: dict[str, Any]) -> None:
        self.names = names
        self.store = store
        self._options = options
        self._broker: Broker | None = None
        self._port = 0

    @property
    def name_server(self) -> str:
        """The name server's `host:port`: what clients take as `name_server`."""
        return self.names.address

    @property
    def broker(self) -> Broker:
        """The broker that runs.

        Raises:
            ClosedError: it was stopped.
        """
        if self._broker is None:
            raise ClosedError("the cluster's broker is stopped: call start_broker() first")
        return self._broker

    def start_broker(self) -> Broker:
        """Start the broker on the store as it is, on the port that it had before.

        Returns:
            The broker; the one that runs already, if it does.

        Example:
            >>> with cluster() as rocketmq:
            ...     rocketmq.stop_broker()
            ...     rocketmq.start_broker().health()["status"]
            'running'
        """
        if self._broker is None:
            options = {**self._options, "listen_port": self._port, "namesrv_addr": self.name_server}
            self._broker = broker = Broker(**options).start()
            broker.await_registration()
            self._port = int(broker.address.rpartition(":")[2])
        return self._broker

    def stop_broker(self, timeout: float = 1.0) -> None:
        """Stop the broker cleanly, if it runs; the store stays.

        Args:
            timeout: seconds that requests under way get.
        """
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.stop(timeout)

    def stop(self) -> None:
        """Stop broker and name server."""
        self.stop_broker(0.0)
        self.names.stop(0.0)


@contextmanager
def cluster(*, store: str | os.PathLike[str] | None = None, **options: object) -> Iterator[Cluster]:
    """Run a name server and a broker inside this process, and stop them at the end.

    Both listen on free ports of the loopback address. The broker creates topics by itself unless
    told otherwise, and is registered with the name server when the block begins.

    Args:
        store: directory for the store; a temporary one that is removed at the end where not given.
        options: options of the broker (`pyrmq.config.BrokerOptions`).

    Yields:
        The cluster: `.name_server` is the address for clients, `.broker` and `.names` the servers,
        `.stop_broker()` and `.start_broker()` for tests of what happens then.

    Raises:
        ConfigError: an option is unknown or wrong.

    Example:
        >>> from pyrmq import Producer
        >>> with cluster() as rocketmq:
        ...     with Producer(name_server=rocketmq.name_server, group="shop") as producer:
        ...         producer.send("orders", b"two coffees").queue_offset
        0
    """
    folder = Path(tempfile.mkdtemp(prefix="pyrmq-")) if store is None else Path(store)
    names = NameServer(
        listen_port=0, bind_address=_HOST, kv_config_path=folder / "namesrv" / "kvConfig.json"
    )
    values: dict[str, Any] = {
        "bind_address": _HOST,
        "broker_ip1": _HOST,
        "broker_name": "broker-a",
        "ha_listen_port": 0,
        "store_path_root_dir": folder / "store",
        "mapped_file_size_commit_log": _SEGMENT_BYTES,
        "max_hash_slot_num": _INDEX_SLOTS,
        "max_index_num": _INDEX_ENTRIES,
        **options,
    }
    running = Cluster(names, Path(str(values["store_path_root_dir"])), values)
    try:
        names.start()
        running.start_broker()
        yield running
    finally:
        running.stop()
        if store is None:
            shutil.rmtree(folder, ignore_errors=True)
