"""No call exceeds its timeout, whether name servers, their host names or brokers are silent."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.ci import skip_outside_ci
from tests.e2e.timing import least
from tests.e2e.ways import FORMS
from tests.e2e.wire import await_true

from pyrmq import Admin, Message, RmqError, SendResult, aio
from pyrmq.errors import RequestTimeout
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIME = 0.4
LATE = 0.1
"""Time by which a call may exceed its timeout."""
TRIES = 40
"""A busy machine also wakes threads late: most of the attempts must be in time, at most these."""


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


@contextmanager
def silence() -> Iterator[str]:
    """Yield an address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def first(queues: Any) -> Any:  # noqa: ANN401 - a selector
    return queues[0]


CALLS: dict[str, Callable[[dict[str, Any], str], object]] = {
    "send to a chosen queue": lambda ways, topic: ways["send"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "send_async to a chosen queue": lambda ways, topic: ways["send_async"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "produce to a chosen queue": lambda ways, topic: ways["produce"](topic, b"x", queue=first),
    "keyed batch": lambda ways, topic: ways["send_batch"](
        topic, Message(topic, b"x", sharding_key="k"), timeout=TIME
    ),
    "batch to a chosen queue": lambda ways, topic: ways["send_batch"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "oneway": lambda ways, topic: ways["send_oneway"](topic, b"x"),
    "oneway to a chosen queue": lambda ways, topic: ways["send_oneway"](topic, b"x", queue=first),
    "request": lambda ways, topic: ways["request"](topic, b"x", timeout=TIME),
    "request to a chosen queue": lambda ways, topic: ways["request"](
        topic, b"x", queue=first, timeout=TIME
    ),
    "transaction": lambda ways, topic: ways["send_in_transaction"](topic, b"x", timeout=TIME),
    "transaction to a chosen queue": lambda ways, topic: ways["send_in_transaction"](
        topic, b"x", queue=first, timeout=TIME
    ),
}


def overtime(call: Callable[[], object]) -> float:
    """Return by how much a failing call exceeds its timeout."""
    began = time.monotonic()
    with pytest.raises(RmqError):
        call()
    return time.monotonic() - began - TIME


def typical_overtime(
    call: Callable[[], object], before: Callable[[], object] = gc.collect
) -> float:
    """Repeat a failing call until most attempts were in time; return the median excess."""
    late: list[float] = []
    while len(late) < TRIES and 2 * sum(one <= LATE for one in late) <= len(late):
        before()
        late.append(overtime(call))
    return sorted(late)[len(late) // 2]


@pytest.mark.parametrize("name", CALLS)
def test_no_call_outlives_its_time_while_name_servers_are_silent(
    name: str, form: Callable[..., Any]
) -> None:
    with silence() as one, silence() as other:
        options: dict[str, Any] = {"name_server": [one, other], "send_timeout": TIME}
        topics = map("t{}".format, itertools.count())
        with form(**options) as ways:
            assert typical_overtime(lambda: CALLS[name](ways, next(topics))) <= LATE


def test_a_request_without_a_reply_ends_in_time_and_says_which_it_was(
    topic: str, form: Callable[..., Any]
) -> None:
    caught: list[RequestTimeout] = []

    def request() -> None:
        try:
            ways["request"](topic, b"x", timeout=TIME)
        except RequestTimeout as error:
            caught.append(error)
            raise

    with cluster() as running, form(name_server=running.name_server) as ways:
        ways["send"](topic, b"first")
        assert typical_overtime(request) <= LATE
    error = caught[-1]
    assert (error.topic, error.broker, error.may_exist) == (topic, "broker-a", True)
    assert error.queue_id is not None
    assert str(error.message_id) in str(error)


@pytest.mark.parametrize(
    "name", ["send to a chosen queue", "keyed batch", "request", "transaction"]
)
def test_no_call_outlives_its_time_while_a_broker_takes_connections_and_is_silent(
    name: str, form: Callable[..., Any], mute: Cluster
) -> None:
    with form(name_server=mute.name_server, send_timeout=TIME) as ways:
        assert typical_overtime(lambda: CALLS[name](ways, "known")) <= LATE


@pytest.mark.parametrize("name", ["request", "transaction"])
def test_nothing_is_sent_once_the_time_of_a_call_is_over(
    name: str, form: Callable[..., Any]
) -> None:
    at_its_end: list[int] = []
    with cluster(faults=True) as running, form(name_server=running.name_server) as ways:
        broker = running.brokers[0]

        def log_end() -> int:
            return int(broker.health()["store"]["max_physical_offset"])

        ways["send"]("known", b"x", timeout=20)
        # The call sends a heartbeat first, and gets its answer when its own time has passed.
        with broker.network.delay(2 * TIME, direction="answers"):
            began = time.monotonic()
            looks = threading.Timer(TIME + LATE, lambda: at_its_end.append(log_end()))
            looks.start()
            with pytest.raises(RmqError):
                CALLS[name](ways, "known")
            looks.join()
            await_true(lambda: time.monotonic() - began > 2 * TIME + LATE)
            assert [log_end()] == at_its_end


@pytest.fixture(scope="module")
def mute() -> Iterator[Cluster]:
    """Yield a broker that has registered at the name server, and answers no client."""
    with cluster(faults=True) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("known")
        with running.brokers[0].network.silence():
            yield running


def test_a_cancelled_block_does_not_wait_for_a_silent_name_server() -> None:
    async def main(address: str) -> None:
        async with asyncio.timeout(0.2), aio.Producer(name_server=address) as producer:
            await producer.send("any", b"x")

    with silence() as address:

        def cancelled() -> float:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                asyncio.run(main(address))
            return time.monotonic() - began

        assert least(cancelled, 2.5) < 2.5, "a name server is asked for 3 s"


def test_a_cancelled_block_still_sends_what_has_a_route(address: str, topic: str) -> None:
    futures: list[asyncio.Future[SendResult]] = []

    async def send(produced: asyncio.Event) -> None:
        async with aio.Producer(name_server=address, linger=60) as producer:
            futures.extend([await producer.produce(topic, b"x") for _ in range(100)])
            produced.set()
            await asyncio.sleep(60)

    async def main() -> list[SendResult]:
        produced = asyncio.Event()
        sending = asyncio.create_task(send(produced))
        await produced.wait()
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
        return await asyncio.gather(*futures)

    assert len(asyncio.run(main())) == 100


HOSTS = """
from concurrent.futures import ThreadPoolExecutor
from tests.e2e.test_deadlines import CALLS, FORMS, TIME, typical_overtime

def late_by(form, name):
    with FORMS[form](name_server="names.example:9876", send_timeout=TIME) as ways:
        return typical_overtime(lambda: CALLS[name](ways, "any"), before=bool)

asked = [(form, name) for form in FORMS for name in CALLS]
# No more at a time than one interpreter wakes without delay.
with ThreadPoolExecutor(8) as threads:
    for (form, name), late in zip(asked, threads.map(lambda one: late_by(*one), asked)):
        print(f"{late:.3f} {form}: {name}", flush=True)
"""
"""Makes each call in each form, some at once, by a name that cannot be resolved."""


def test_no_call_outlives_its_time_while_the_dns_is_silent(tmp_path: Path) -> None:
    resolver = tmp_path / "resolv.conf"
    # Nobody answers there; the system tries for 5 s, twice.
    resolver.write_text("nameserver 127.0.0.77\n")
    # In its own mount namespace: only this process sees that resolver.
    inside = 'mount --bind "$1" /etc/resolv.conf && exec "$2" -c "$3"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        inside,
        "sh",
        str(resolver),
        sys.executable,
        HOSTS,
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.0.0.77", 53))
            subprocess.run([*command[:2], "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            skip_outside_ci("needs the right to bind port 53 and to mount")
        told = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert told.returncode == 0, told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == len(CALLS) * len(FORMS)
    assert [line for line in lines if float(line.split()[0]) > LATE] == []
