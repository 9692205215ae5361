"""The two sides of a comparison: our server process, and the real name server and broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.ask import await_registered
from tests.interop.rocketmq import JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

VERSION = "5.5.0"
MEASURED_STORE = {
    "mappedFileSizeCommitLog": 134217728,
    "mappedFileSizeConsumeQueue": 6000000,
    "maxHashSlotNum": 5000000,
    "maxIndexNum": 20000000,
    "timerWheelEnable": "true",
    "enablePropertyFilter": "true",
}
"""Settings of both sides: Apache's default sizes, except a segment of 128 MiB; SQL92 filters."""

JAVA_STORE = {**MEASURED_STORE, "messageIndexSafe": "false"}
"""Settings of the Java broker: those of both sides, and Apache's default for the index, which the
tests' Java broker does not have."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One running cluster.

    Attributes:
        name: `ours` or `apache`.
        name_server: address for clients, `host:port`.
        broker_pid: the process whose CPU time counts as the broker's.
        environment: more variables that its clients need.
        home: directory of the files of the server, if it is known.
    """

    name: str
    name_server: str
    broker_pid: int
    environment: dict[str, str] = field(default_factory=dict)
    home: str = ""


@contextmanager
def ours(
    root: Path | None = None,
    *,
    name: str = "ours",
    options: Mapping[str, object] | None = None,
    environment: dict[str, str] | None = None,
    store: Mapping[str, object] | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> Iterator[tuple[Side, float]]:
    """Run `pyrmq server`; yield it with the milliseconds until it was ready.

    `options` are for both of its servers, `environment` is for its clients, `store` are further
    lines of broker.conf. `prepare` may write its store directory before it starts.
    """
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-", dir=root) as home:
        config = Path(home) / "broker.conf"
        lines = [f"{key}={value}" for key, value in {**MEASURED_STORE, **(store or {})}.items()]
        config.write_text("\n".join(lines), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pyrmq",
            "server",
            "--json",
            "--store",
            f"{home}/store",
            "--config",
            str(config),
        ]
        command += ["--listen-port", "0", "--name-server-port", "0"]
        variables = {
            f"PYRMQ_{server}_{key.upper()}": str(value)
            for server in ("NAMESERVER", "BROKER")
            for key, value in (options or {}).items()
        }
        if prepare is not None:
            prepare(Path(home) / "store")
        started = time.perf_counter()
        with subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                ready = json.loads(server.stdout.readline())
                took = (time.perf_counter() - started) * 1000
                side = Side(
                    name=name,
                    name_server=ready["name_server"],
                    broker_pid=server.pid,
                    environment=environment or {},
                    home=home,
                )
                yield side, took
            finally:
                server.terminate()
                server.wait(timeout=60)


@contextmanager
def apache() -> Iterator[tuple[Side, float]]:
    """Run the real servers; yield them with the milliseconds until both were ready."""
    with ExitStack() as stack:
        started = time.perf_counter()
        names = stack.enter_context(JavaNameServer(VERSION, quick=False))
        broker = stack.enter_context(
            JavaBroker(VERSION, names.address, quick=False, heap_mb=1024, properties=JAVA_STORE)
        )
        took = (time.perf_counter() - started) * 1000
        # It says that it has started before its name server knows it.
        await_registered(names.address, broker.address)
        yield Side(name="apache", name_server=names.address, broker_pid=broker.pid), took
