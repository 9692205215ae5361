"""Ctrl-C ends each wait of a producer for a broker that is connected but silent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from pyrmq import NameServer, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "silent"

HEAD = """
import asyncio
import os
import signal
import sys
import time
from pyrmq import Producer, TransactionProducer, TransactionState, aio

# A shell starts what runs in its background with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
address, topic = sys.argv[1:]
options = {"name_server": address, "send_timeout": 60, "max_in_flight": 2}
producer = Producer(**options)


def wait():
    print("ready", flush=True)
"""

WAITS = {
    "send": """
        wait()
        producer.send(topic, b"x")
    """,
    "send by key": """
        wait()
        producer.send(topic, b"x", sharding_key="k")
    """,
    "a future": """
        future = producer.send_async(topic, b"x")
        wait()
        future.result()
    """,
    "send_batch": """
        wait()
        producer.send_batch(topic, [b"x", b"y"])
    """,
    "room for produce": """
        producer.produce(topic, b"x")
        producer.produce(topic, b"y")
        wait()
        producer.produce(topic, b"z")
    """,
    "room for send_async": """
        producer.send_async(topic, b"x")
        producer.send_async(topic, b"y")
        wait()
        producer.send_async(topic, b"z")
    """,
    "flush": """
        producer.produce(topic, b"x")
        wait()
        producer.flush(timeout=60)
    """,
    "poll": """
        producer.produce(topic, b"x", print)
        wait()
        producer.poll(timeout=60)
    """,
    "close": """
        producer.produce(topic, b"x")
        wait()
        producer.close(timeout=60)
    """,
    "request": """
        wait()
        producer.request(topic, b"x", timeout=60)
    """,
    "a half": """
        own = TransactionProducer(
            check=lambda _: TransactionState.UNKNOWN, group="own", **options
        )
        wait()
        own.send_in_transaction(topic, b"x", lambda _: None)
    """,
    "an awaited send": """
        async def main():
            own = aio.Producer(**options)
            wait()
            await own.send(topic, b"x")

        asyncio.run(main())
    """,
    "an awaited batch": """
        async def main():
            own = aio.Producer(**options)
            wait()
            await own.send_batch(topic, [b"x", b"y"])

        asyncio.run(main())
    """,
}


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a name server with a stopped broker: connections to it open, but nothing arrives."""
    folder: Path = tmp_path_factory.mktemp("silent")
    config = folder / "broker.conf"
    config.write_text(
        "brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\nmappedFileSizeCommitLog=1048576\n"
        f"maxHashSlotNum=100\nmaxIndexNum=400\nstorePathRootDir={folder / 'store'}\n"
    )
    kept = folder / "kvConfig.json"
    with NameServer(listen_port=0, bind_address="127.0.0.1", kv_config_path=kept) as names:
        command = [sys.executable, "-m", "pyrmq", "broker", "--json", "-c", str(config)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            [*command, "-n", names.address], stdout=subprocess.PIPE, text=True, env=environment
        ) as broker:
            try:
                assert broker.stdout is not None
                assert json.loads(broker.stdout.readline())
                with Producer(name_server=names.address, send_timeout=20) as producer:
                    producer.send(TOPIC, b"while it answers")
                broker.send_signal(signal.SIGSTOP)
                yield names.address
            finally:
                broker.kill()


@pytest.fixture(scope="module")
def ended(silent: str) -> dict[str, tuple[float, str]]:
    """Return how long each program ran after the signal, and its output; all run together."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    programs = {
        name: subprocess.Popen(
            [sys.executable, "-c", HEAD + textwrap.dedent(wait), silent, TOPIC],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name, wait in WAITS.items()
    }
    try:
        for program in programs.values():
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        # The waits begin within this time; an earlier signal ends the program too.
        time.sleep(0.5)
        began = time.monotonic()
        for program in programs.values():
            program.send_signal(signal.SIGINT)
        said = {}
        for name, program in programs.items():
            _, errors = program.communicate(timeout=60)
            said[name] = (time.monotonic() - began, errors)
        return said
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_a_wait_for_a_silent_broker(
    ended: dict[str, tuple[float, str]], name: str
) -> None:
    took, errors = ended[name]
    assert "KeyboardInterrupt" in errors, errors
    # Each would wait for a minute; the interpreter's exit may take 2 s for what is left open.
    assert took < 30, took
