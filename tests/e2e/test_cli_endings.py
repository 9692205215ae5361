"""Commands that end early: a closed pipe, Ctrl-C, a broker that goes; and odd arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.interop.ours import python_path

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.cli import main
from pyrmq.cli.message import tail
from pyrmq.cli.times import moment, shown
from pyrmq.errors import ConfigError, ConnectionLost
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


def pyrmq(*words: str, address: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": python_path(), "NAMESRV_ADDR": address}
    return subprocess.Popen(
        [sys.executable, "-m", "pyrmq", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_a_send_whose_reader_ends_says_that_not_everything_was_sent(two: Cluster) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    with pyrmq("send", "pipe", "-", "--json", address=two.name_server) as sending:
        assert sending.stdout is not None
        assert sending.stdin is not None
        assert sending.stderr is not None
        sending.stdin.write(lines[:2000])
        sending.stdin.flush()
        sending.stdout.close()
        try:
            sending.stdin.write(lines[2000:])
            sending.stdin.close()
        except BrokenPipeError:
            pass
        assert b"not everything was done" in sending.stderr.read()
        assert sending.wait(30) == 1


def test_a_group_without_dead_letters_has_none(
    two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("healthy-orders", queues=1)
    with PullConsumer(name_server=two.name_server, group="healthy") as consumer:
        consumer.subscribe("healthy-orders")
        consumer.poll(timeout=0.2)
    assert main(["dlq", "resend", "healthy", "-n", two.name_server]) == 0
    assert "sent 0 messages" in capsys.readouterr().out
    assert main(["dlq", "list", "healthy", "-n", two.name_server]) == 0


def test_a_resend_that_is_stopped_says_how_far_it_came(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("%DLQ%kitchen", queues=1)
    with Producer(name_server=two.name_server) as producer:
        producer.send_batch("%DLQ%kitchen", [b"letter"] * 10)
    count = 0

    def resend(*_: object) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Admin, "resend_dead_letter", resend)
    assert main(["dlq", "resend", "kitchen", "-n", two.name_server]) == 130
    text = capsys.readouterr().err
    assert "stopped: 3 messages were sent again (broker broker-" in text
    assert "to offset" in text


def test_a_tail_that_follows_prints_what_arrives_later(two: Cluster) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("followed", queues=1)
    words = ["tail", "followed", "--from", "first", "--follow", "--count", "3"]
    with (
        Producer(name_server=two.name_server) as producer,
        pyrmq(*words, "--format", "{body}", address=two.name_server) as following,
    ):
        assert following.stdout is not None
        for body in (b"one", b"two", b"three"):
            producer.send("followed", body)
            # The next one is sent once this one is printed.
            assert following.stdout.readline() == body + b"\n"
        assert following.wait(30) == 0
    with pyrmq(*words, "--stop", address=two.name_server) as refused:
        assert refused.stderr is not None
        assert b"not allowed with argument --follow" in refused.stderr.read()
        assert refused.wait(30) == 2


def test_reading_to_an_end_that_never_comes_ends_with_the_queues(
    two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_SILENCE_SECONDS", 0.5)
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("away", queues=1)
    with PullConsumer(name_server=two.name_server, group=tail.GROUP, auto_commit=None) as consumer:
        bounds = tail.Bounds.of(consumer, consumer.queues("away"))
        consumer.assign(bounds.begins)
        ends = {queue: end + 1 for queue, end in bounds.ends.items()}
        with pytest.raises(ConnectionLost, match="queue 0 of away on broker-a at offset 0 of 1"):
            list(tail.messages(consumer, ends))


@pytest.mark.parametrize(
    "words",
    [
        ["dlq", "resend", "g", "--max", "-1"],
        ["dlq", "list", "g", "--max", "0"],
        ["tail", "t", "--count", "0"],
        ["group", "seek", "g", "t", "²"],
        ["group", "seek", "g", "t", "5", "--queue", "broker-a:²"],
        ["tail", "t", "--since", "9999999999d"],
    ],
)
def test_odd_numbers_are_refused(
    words: list[str], two: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("t", queues=1)
    assert main([*words, "-n", two.name_server]) == 2
    assert capsys.readouterr().err


def test_times_beyond_the_calendar() -> None:
    assert shown(1 << 62) == str(1 << 62)
    with pytest.raises(ConfigError, match="before the calendar"):
        moment("9999999999d")
