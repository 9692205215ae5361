"""`pyrmq broker status`: what an operator sees, as a table and as JSON, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from tests.e2e.dashboards import FIGURES_OF_4_6_1, silent_broker
from tests.e2e.wire import V4_6_1, Connection, await_true, register

from pyrmq import Producer, RmqError
from pyrmq.cli import main
from pyrmq.testing import Cluster, cluster


def status(running: Cluster, *words: str) -> int:
    return main(["broker", "status", "-n", running.name_server, "--interval", "0.05", *words])


def test_healthy_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(brokers=2) as running:
        with Producer(name_server=running.name_server) as producer:
            for _ in range(10):
                producer.send("orders", b"x")
            assert status(running, "--json") == 0
        reports: list[dict[str, Any]] = [
            json.loads(line) for line in capsys.readouterr().out.splitlines()
        ]
        assert [one["broker"] for one in reports] == ["broker-a", "broker-b"]
        assert sum(one["puts"] for one in reports) == 10
        for one in reports:
            assert one["ready"]
            assert one["registered"] == one["name_servers"] == 1
            assert one["memory"]["resident_bytes"] > 1 << 20
            assert one["uptime_ms"] < 60_000
            assert one["puts_per_second"] == 0
        assert status(running, "--broker", "broker-b") == 0
        text = capsys.readouterr().out
        assert "broker-b" in text
        assert "broker-a" not in text
        assert "at 1 of 1 name server" in text


def test_a_broker_that_takes_no_messages(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        cluster(faults=True, flush_disk_type="SYNC_FLUSH") as running,
        Producer(name_server=running.name_server, retries=0) as producer,
    ):
        producer.send("orders", b"x")
        running.brokers[0].disk.fail_syncs()
        with pytest.raises(RmqError):
            producer.send("orders", b"x", timeout=5)
        await_true(lambda: status(running) == 1)
        text = capsys.readouterr().out
    assert "NOT READY" in text
    assert "cannot flush" in text


def test_a_broker_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster() as running, Connection(running.name_server) as registration:
        register(registration, "far", ["a", "b"], port=1)
        assert status(running) == 1
        text = capsys.readouterr().out
        assert "far" in text
        assert "127.0.0.1:1" in text
        assert "NOT READY" in text


def test_a_broker_that_does_not_answer_what_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with cluster() as running, silent_broker(running.name_server, FIGURES_OF_4_6_1, V4_6_1) as name:
        assert status(running, "--broker", name, "--json") == 0
    old = json.loads(capsys.readouterr().out)
    assert (old["version"], old["note"].partition(":")[0]) == ("4.6.1", "not a broker of pyrmq")


def test_watching_survives_a_restarted_name_server() -> None:
    lines: list[str] = []
    errors: list[str] = []
    with cluster() as running:
        words = ["broker", "status", "-n", running.name_server, "--watch", "--json"]
        with subprocess.Popen(
            [sys.executable, "-m", "pyrmq", *words, "--interval", "0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            readers = [
                threading.Thread(target=lambda: lines.extend(watching.stdout or ())),
                threading.Thread(target=lambda: errors.extend(watching.stderr or ())),
            ]
            for reader in readers:
                reader.start()
            try:
                await_true(lambda: len(lines) > 1, seconds=20)
                running.name_servers[0].stop()
                await_true(lambda: any("error" in line for line in errors), seconds=20)
                running.name_servers[0].start()
                seen = len(lines)
                await_true(lambda: len(lines) > seen, seconds=20)
            finally:
                # Not SIGINT: a run in the background inherits that it is ignored.
                watching.terminate()
                watching.wait(20)
                for reader in readers:
                    reader.join(20)
    assert json.loads(lines[-1])["broker"] == "broker-a"


def test_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster() as running:
        assert status(running, "--broker", "nobody") == 1
    assert "no broker named nobody is registered" in capsys.readouterr().out
