"""`pyrmq bench` on a running cluster, and on one that it starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import PullConsumer
from pyrmq.cli import main
from pyrmq.cli.bench.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyrmq.testing import Cluster


@pytest.fixture
def bench(
    rocketmq_session: Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a load on the cluster and returns its figures."""

    def run(*words: str) -> dict[str, Any]:
        assert main(["bench", *words, "-n", rocketmq_session.name_server, "--json"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        figures: dict[str, Any] = json.loads(line)
        return figures

    return run


def stored(cluster: Cluster, topic: str) -> int:
    with PullConsumer(name_server=cluster.name_server, group="bench-counts") as consumer:
        bounds = [consumer.bounds(queue) for queue in consumer.queues(topic)]
    return sum(last - first for first, last in bounds)


@pytest.mark.parametrize("how", ["produce", "batch", "async", "sync"])
def test_what_is_counted_is_stored(
    bench: Callable[..., dict[str, Any]], rocketmq_session: Cluster, how: str
) -> None:
    topic = f"bench-{how}"
    figures = bench("produce", "--how", how, "--topic", topic, "--count", "640", "--threads", "2")
    assert (figures["messages"], figures["failed"], figures["how"]) == (640, 0, how)
    # One more request fetched the route before the clock began.
    assert stored(rocketmq_session, topic) == 641
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
    assert figures["server_cpu_us"] is None


def test_a_rate_holds(bench: Callable[..., dict[str, Any]]) -> None:
    figures = bench("produce", "--topic", "bench-rate", "--rate", "2000", "--count", "400")
    assert figures["messages"] == 400
    assert figures["per_second"] <= 2200


def test_a_backlog_is_made_and_drained(
    bench: Callable[..., dict[str, Any]], rocketmq_session: Cluster
) -> None:
    figures = bench("consume", "--topic", "bench-drain", "--count", "20000", "--size", "16")
    assert figures["messages"] >= 20_000
    assert stored(rocketmq_session, "bench-drain") == 20_000
    bench("consume", "--topic", "bench-drain", "--count", "20000")
    assert stored(rocketmq_session, "bench-drain") == 20_000


def test_a_message_goes_there_and_back(bench: Callable[..., dict[str, Any]]) -> None:
    figures = bench("roundtrip", "--topic", "bench-trip", "--count", "50")
    assert figures["messages"] == 50
    assert figures["p50_ms"] > 0


def test_a_server_of_its_own_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "bench.png"
    assert main(["bench", "produce", "--count", "5000", "--plot", str(picture)]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["client", "how", "size"]
    assert row.split()[:4] == ["pyrmq", "produce", "128", "5000"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--size", "0"], "`--size` is 0: it must be 1 or more"),
        (["--rate", "-1"], "`--rate` is -1.0: it must be above 0"),
        (["--seconds", "0"], "`--seconds` is 0.0: it must be above 0"),
    ],
)
def test_a_wrong_number_is_refused(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "produce", *words]) == 2
    assert text in capsys.readouterr().err


def test_kafka_without_its_client_says_what_to_install(
    bench: Callable[..., dict[str, Any]],
    rocketmq_session: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    words = ["bench", "produce", "-n", rocketmq_session.name_server, "--count", "1"]
    assert main([*words, "--kafka", "127.0.0.1:9092"]) == 2
    assert "pip install confluent-kafka" in capsys.readouterr().err


def test_percentiles_are_samples() -> None:
    ordered = [float(number) for number in range(1, 101)]
    shares = (0.0, 0.5, 0.99, 1.0)
    assert [percentile(ordered, share) for share in shares] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([], 0.5) is None
