"""Sends, and producers that open and close, leak no memory, threads or descriptors.

This holds in this process, and in those of broker and name server. The default run is short;
`make leaks` sends a million messages and opens ten thousand producers.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.e2e.wire import await_true
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import Admin, Producer, TransactionProducer, TransactionState, aio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(1500)

WARM_UP, ROUNDS = 2, 5
"""Rounds of the work; growth after the first ones is a leak."""
SPREAD_KIB = 6 * 1024
"""Fluctuation of a process without leaks."""
LARGE_FILES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
}
"""Keeps the number of the store's open files small."""
MESSAGES = 250
"""Messages in flight of the loads that send many."""


class Held(NamedTuple):
    """Resources of a process."""

    resident_kib: int
    threads: int
    descriptors: int


def held(pid: int | str = "self") -> Held:
    """Measure a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    resident, threads = int(values["VmRSS"].split()[0]), int(values["Threads"])
    return Held(resident, threads, len(list(Path(f"/proc/{pid}/fd").iterdir())))


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[OurNameServer, OurBroker]]:
    """A name server and a broker as processes, so that each one's memory is measured."""
    with OurNameServer() as names, OurBroker(names.address, properties=LARGE_FILES) as broker:
        await_registered(names.address, "broker-a")
        with Admin(name_server=names.address) as admin:
            admin.create_topic("leaks", queues=4)
        yield names, broker


def watch(servers: tuple[OurNameServer, OurBroker], work: Callable[[], None]) -> None:
    """Repeat the work; threads, descriptors and memory must return to their level."""
    pids: list[int | str] = ["self", *(server.pid for server in servers)]
    for _ in range(WARM_UP):
        work()
    gc.collect()
    before = {pid: held(pid) for pid in pids}
    for _ in range(ROUNDS - WARM_UP):
        work()
    gc.collect()

    def as_before() -> bool:
        # A broker writes offsets every 5 s: the runtime starts a thread for that, which remains.
        more = {pid: int(pid != "self") for pid in pids}
        now = [(held(pid), before[pid], more[pid]) for pid in pids]
        # A broker's log and index add files that stay open.
        return all(
            new.threads <= old.threads + one and new.descriptors <= old.descriptors + 8
            for new, old, one in now
        )

    try:
        await_true(as_before)
    finally:
        for pid in pids:
            print(f"{pid}: {before[pid]}, then {held(pid)}")  # noqa: T201 - shown when it fails
    for pid in pids:
        grown = held(pid).resident_kib - before[pid].resident_kib
        assert grown < SPREAD_KIB, f"process {pid} grew by {grown} KiB"


def test_sends_leave_nothing_behind(
    request: pytest.FixtureRequest, servers: tuple[OurNameServer, OurBroker]
) -> None:
    count = int(request.config.getoption("--leak-sends")) // ROUNDS
    address = servers[0].address
    with (
        Producer(name_server=address, group="leaks", linger=0) as each,
        Producer(name_server=address, group="leaks") as together,
    ):

        def work() -> None:
            told: list[object] = []
            for _ in range(count // (4 * MESSAGES)):
                for number in range(MESSAGES):
                    each.produce("leaks", b"x" * 100, lambda error, _: told.append(error))
                    together.produce("leaks", b"x" * 100, sharding_key=f"key-{number % 9}")
                futures = [together.send_async("leaks", b"x") for _ in range(MESSAGES)]
                together.send_batch("leaks", [b"x" * 100] * MESSAGES)
                for future in futures:
                    future.result()
                together.send("leaks", b"x", keys="k")
                assert each.flush(60)
                assert together.flush(60)
            assert not any(told)

        watch(servers, work)


def test_producers_that_come_and_go_leave_nothing_behind(
    request: pytest.FixtureRequest, servers: tuple[OurNameServer, OurBroker]
) -> None:
    count = int(request.config.getoption("--leak-producers")) // ROUNDS
    address = servers[0].address

    async def in_a_loop() -> None:
        async with aio.Producer(name_server=address, group="leaks") as producer:
            await producer.send("leaks", b"x")

    def work() -> None:
        for number in range(count):
            match number % 5:
                case 0:
                    with Producer(name_server=address, group="leaks") as producer:
                        producer.send("leaks", b"x")
                case 1:
                    # Its thread for futures must end with it.
                    with Producer(name_server=address, group="leaks", trace=True) as producer:
                        producer.send_async("leaks", b"x").result()
                case 2:
                    asyncio.run(in_a_loop())
                case 3:
                    with TransactionProducer(
                        name_server=address, group="leaks", check=lambda _: TransactionState.COMMIT
                    ) as transactions:
                        transactions.send_in_transaction("leaks", b"x", lambda _: None)
                case _:
                    # It is not closed.
                    forgotten = Producer(
                        name_server=address, group="leaks", latency_fault=True, start_detector=True
                    )
                    forgotten.send("leaks", b"x")
                    del forgotten

    watch(servers, work)
