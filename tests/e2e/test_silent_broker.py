"""Commands while a broker is frozen or was killed: they end in time, and name it."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from tests.e2e.timing import least
from tests.e2e.wire import await_true

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.cli import main
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 1.0
MOST = SECONDS + 2.0
"""A call that waits for the broker once more takes longer."""


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with cluster(brokers=2, processes=True) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("orders", queues=1)
        with Producer(name_server=running.name_server) as producer:
            for _ in range(20):
                producer.send("orders", b"x")
        with PullConsumer(
            name_server=running.name_server, group="kitchen", start="first"
        ) as consumer:
            consumer.subscribe("orders")
            got = 0

            def has_all() -> bool:
                nonlocal got
                got += len(consumer.poll(64, 1))
                return got >= 20

            await_true(has_all, 20)
            consumer.commit()
        yield running


@contextmanager
def frozen(running: Cluster) -> Iterator[str]:
    """Freeze the second broker."""
    pid = running.brokers[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield running.brokers[1].address
    finally:
        os.kill(pid, signal.SIGCONT)


def failing(*words: str) -> float:
    """Run a command that fails; return how long it took."""
    began = monotonic()
    assert main(words) == 1
    return monotonic() - began


@pytest.mark.parametrize(
    "words",
    [
        ("lag", "kitchen"),
        ("lag", "kitchen", "--max", "1000"),
        ("lag", "kitchen", "--topic", "orders"),
        ("describe", "kitchen"),
    ],
)
def test_a_frozen_broker_is_named_in_time(
    two: Cluster, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    options = ["--timeout", str(SECONDS), "-n", two.name_server]
    with frozen(two) as address:
        assert SECONDS <= least(lambda: failing("group", *words, *options), MOST) < MOST
    assert f"no answer from broker-b ({address})" in capsys.readouterr().err


def test_a_seek_says_where_it_moved_the_group(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("group", "seek", "kitchen", "orders", "first", "--timeout", str(SECONDS))
    with frozen(two) as address:
        assert least(lambda: failing(*words, "-n", two.name_server), MOST) < MOST
    error = capsys.readouterr().err
    assert f"no answer from broker-b ({address})" in error
    assert "moved at: broker-a" in error
    with Admin(name_server=two.name_server) as admin:
        progress = {
            queue.broker: offset.committed
            for queue, offset in admin.consumer_progress("kitchen", "orders").items()
        }
    assert progress["broker-a"] == 0


def test_the_doctor_finds_a_frozen_broker_and_one_that_was_killed(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["doctor", "-n", two.name_server, "--json", "--timeout", str(SECONDS)]
    with frozen(two) as address:

        def ask() -> float:
            capsys.readouterr()
            return failing(*words)

        assert least(ask, 5.0) < 5.0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["check"] for one in found if one["level"] == "error"] == ["broker-gone"]
        assert f"broker-b ({address})" in found[0]["cause"]
    two.brokers[1].kill()
    try:

        def checks() -> list[str]:
            main(words)
            lines = capsys.readouterr().out.splitlines()
            return [json.loads(line)["check"] for line in lines]

        # The name server forgets it when its connection ends, but not that it was there.
        await_true(lambda: checks() == ["broker-lost"], 20)
        assert main(words) == 1
        (found_last,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert found_last["cause"].startswith(f"broker broker-b ({address}) ended")
    finally:
        two.brokers[1].start()
    await_true(lambda: main(words) == 0, 20)
