"""The real name server and broker of Apache RocketMQ on free ports, and its mqadmin.

::

    with JavaNameServer("5.5.0") as names, JavaBroker("5.5.0", names.address) as broker:
        print(mqadmin("5.5.0", "clusterList", "-n", names.address))

Each server has its own directory (``user.home``, logs, store) under the temporary directory.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import artifacts
from tests.interop.jvm import JavaProcess, free_broker_port, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAIN_NAMESRV = "org.apache.rocketmq.namesrv.NamesrvStartup"
MAIN_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
MAIN_MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"

SMALL_STORE: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "messageIndexSafe": "true",
}
"""Broker properties that keep a store small: 4 MiB segments, small queues and index files."""


def write_properties(path: Path, properties: Mapping[str, object]) -> Path:
    """Write a Java property file and return its path."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def serialize_flag(serialize: str) -> str:
    """Return the JVM flag for the header form ``JSON`` or ``ROCKETMQ``."""
    return f"-Drocketmq.serialize.type={serialize}"


class JavaNameServer(JavaProcess):
    """The real name server on a free port of 127.0.0.1.

    Args:
        version: RocketMQ version.
        port: the port to listen on; a free one without it.
        serialize: header form of what it sends, ``JSON`` or ``ROCKETMQ``.
        properties: more keys for its property file.
        heap_mb: the largest heap, in MiB.
        quick: start fast and small; False for measurements.
    """

    def __init__(
        self,
        version: str,
        *,
        port: int | None = None,
        serialize: str = "JSON",
        properties: Mapping[str, object] | None = None,
        heap_mb: int = 256,
        quick: bool = True,
    ) -> None:
        """Write its property file; ``start`` or ``with`` runs it."""
        self.port = port or free_port()
        super().__init__(
            "namesrv",
            version,
            MAIN_NAMESRV,
            jvm=[serialize_flag(serialize)],
            heap_mb=heap_mb,
            quick=quick,
        )
        config = write_properties(
            self.work_dir / "namesrv.conf", {"listenPort": self.port, **(properties or {})}
        )
        self._arguments = ["-c", str(config)]

    @property
    def address(self) -> str:
        """``host:port`` for clients and brokers."""
        return f"127.0.0.1:{self.port}"


class JavaBroker(JavaProcess):
    """The real broker as a master on free ports of 127.0.0.1.

    Args:
        version: RocketMQ version.
        namesrv: name server address, ``host:port``.
        store_dir: its store; a new directory below its work directory without it.
        name: broker name.
        cluster: cluster name.
        port: main port (the port two below is used as well); free ones without it.
        serialize: header form of what it sends, ``JSON`` or ``ROCKETMQ``.
        properties: more keys for ``broker.conf``; they win over all others.
        heap_mb: the largest heap, in MiB.
        quick: start fast and small; False for measurements.
    """

    def __init__(
        self,
        version: str,
        namesrv: str,
        *,
        store_dir: Path | None = None,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        port: int | None = None,
        serialize: str = "JSON",
        properties: Mapping[str, object] | None = None,
        heap_mb: int = 400,
        quick: bool = True,
    ) -> None:
        """Write its property file; ``start`` or ``with`` runs it."""
        self.port = port or free_broker_port()
        self.broker_name = name
        self.cluster = cluster
        super().__init__(
            "broker",
            version,
            MAIN_BROKER,
            jvm=[serialize_flag(serialize)],
            heap_mb=heap_mb,
            quick=quick,
        )
        self.store_dir = store_dir or self.work_dir / "store"
        config = write_properties(
            self.work_dir / "broker.conf",
            {
                "brokerClusterName": cluster,
                "brokerName": name,
                "brokerId": 0,
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "listenPort": self.port,
                "haListenPort": free_port(),
                "namesrvAddr": namesrv,
                "storePathRootDir": self.store_dir,
                "storePathCommitLog": self.store_dir / "commitlog",
                "autoCreateTopicEnable": "true",
                "enablePropertyFilter": "true",
                "deleteWhen": "04",
                "diskMaxUsedSpaceRatio": 99,
                **SMALL_STORE,
                **(properties or {}),
            },
        )
        self._arguments = ["-c", str(config)]

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"


def mqadmin(version: str, *words: str, timeout: float = 60.0) -> str:
    """Run one mqadmin command in a new JVM (2 to 3 s) and return its output.

    ``Driver.mqadmin`` runs commands inside an existing JVM.
    """
    artifacts.require_java()
    with tempfile.TemporaryDirectory(prefix="pyrmq-mqadmin-") as home:
        process = JavaProcess(
            "mqadmin", version, MAIN_MQADMIN, arguments=list(words), work_dir=Path(home)
        )
        done = subprocess.run(
            process.command(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            cwd=home,
        )
    return done.stdout + done.stderr


def java_pair(
    version: str, *, serialize: str = "JSON", broker: Mapping[str, object] | None = None
) -> tuple[JavaNameServer, JavaBroker]:
    """Return a name server and a broker that registers at it, neither started."""
    names = JavaNameServer(version, serialize=serialize)
    return names, JavaBroker(version, names.address, serialize=serialize, properties=broker)


def words(text: str | Sequence[str]) -> list[str]:
    """Split a command line for mqadmin at blanks, or take it as it is."""
    return text.split() if isinstance(text, str) else list(text)
