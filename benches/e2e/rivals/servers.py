"""The rivals' servers: a Kafka broker from Maven Central, and nats-server built with Go.

Each listens on free loopback ports, keeps its files in a temporary directory and is stopped by its
process id. Unavailable servers are omitted, with a line that gives the reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import artifacts
from tests.interop.jvm import free_port

from benches.e2e.servers import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KAFKA = "4.1.0"
NATS = "github.com/nats-io/nats-server/v2@latest"
START_S = 60.0
HERE = Path(__file__).parent


class NotAvailableError(RuntimeError):
    """A rival is not available on this machine."""


def kafka_jars() -> Path:
    """Return the directory with Kafka's jars; the first use fetches them."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise NotAvailableError("Kafka needs Java and Maven")
    if find_spec("confluent_kafka") is None:
        raise NotAvailableError("confluent-kafka is not installed: install the extra `bench`")
    home = artifacts.cache_dir() / f"kafka-{KAFKA}"
    with artifacts.locked(f"kafka-{KAFKA}"):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            shutil.copy(HERE / "pom.xml", home)
            command = [
                *("mvn", "-q", "-B", "-f", str(home / "pom.xml"), f"-Dkafka.version={KAFKA}"),
                *("dependency:copy-dependencies", "-DincludeScope=runtime"),
                f"-DoutputDirectory={home / 'lib'}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
            if done.returncode:
                raise NotAvailableError(f"Maven could not fetch Kafka {KAFKA}: {done.stdout[:300]}")
            (home / "complete").touch()
    return home / "lib"


@contextmanager
def kafka(heap_mb: int = 1024, properties: Mapping[str, str] | None = None) -> Iterator[Side]:
    """Run one Kafka node as broker and controller; `properties` override the usual ones."""
    jars = kafka_jars()
    with tempfile.TemporaryDirectory(prefix="pyrmq-kafka-") as home:
        port, control = free_port(), free_port()
        config = Path(home) / "server.properties"
        keys = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": f"{home}/logs",
            "num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.segment.bytes": str(128 * 1024 * 1024),
            **(properties or {}),
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        java = ["java", f"-Xmx{heap_mb}m", f"-Xms{heap_mb}m", "-cp", f"{jars}/*"]
        formats = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk"]
        subprocess.run(
            [*java, *formats, "-c", str(config)], capture_output=True, check=True, timeout=60
        )
        with _process("kafka", [*java, "kafka.Kafka", str(config)], port, home) as pid:
            address = f"127.0.0.1:{port}"
            _await_kafka(address)
            yield Side(name="kafka", name_server=address, broker_pid=pid, home=home)


def _await_kafka(address: str) -> None:
    """Create the topic of the loads, because the port opens before the node serves."""
    from importlib import import_module

    from benches.e2e.rivals.common import TOPIC

    module = import_module("confluent_kafka.admin")
    admin = module.AdminClient({"bootstrap.servers": address, "log_level": 0})
    deadline = time.monotonic() + START_S
    while True:
        try:
            made = admin.create_topics([module.NewTopic(TOPIC, 4, 1)], request_timeout=5)
            made[TOPIC].result(10)
        except Exception:  # the library's own error class cannot be named here
            if time.monotonic() > deadline:
                raise
        else:
            return


def nats_server() -> str:
    """Return the program, which the first use installs with Go into the tests' cache."""
    if found := shutil.which("nats-server"):
        return found
    home = artifacts.cache_dir() / "nats"
    program = home / "nats-server"
    go = shutil.which("go")
    with artifacts.locked("nats"):
        if not program.exists():
            if go is None:
                raise NotAvailableError("nats-server is not on PATH, and neither is go to build it")
            environment = {**os.environ, "GOBIN": str(home)}
            done = subprocess.run(
                [go, "install", NATS],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
            if done.returncode:
                raise NotAvailableError(f"go could not build nats-server: {done.stderr[-300:]}")
    return str(program)


@contextmanager
def nats() -> Iterator[Side]:
    """Run one nats-server; it confirms JetStream messages from memory, and no others."""
    program, port = nats_server(), free_port()
    with tempfile.TemporaryDirectory(prefix="pyrmq-nats-") as home:
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", home]
        with _process("nats-server", command, port, home) as pid:
            yield Side(name="nats", name_server=f"nats://127.0.0.1:{port}", broker_pid=pid)


@contextmanager
def _process(name: str, command: Sequence[str], port: int, home: str) -> Iterator[int]:
    """Run a server until the block ends; its port is open when the block begins."""
    log = Path(home) / "out.log"
    with (
        log.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=home) as server,
    ):
        try:
            deadline = time.monotonic() + START_S
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None or time.monotonic() > deadline:
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                    raise NotAvailableError(f"{name} did not start:\n{tail}")
                time.sleep(0.1)
            yield server.pid
        finally:
            server.terminate()
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()
