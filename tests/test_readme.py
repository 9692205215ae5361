"""Runs every program of README and docs as written, except for addresses.

Those that need Spark run in tests/spark/test_docs.py.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pyrmq import (
    MessageBatch,
    Producer,
    PullConsumer,
    TransactionProducer,
    TransactionState,
)
from pyrmq.cli import main
from pyrmq.errors import FilterError
from pyrmq.remoting import Client
from pyrmq.routing import Filter
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    f"{page.name}: {block.splitlines()[0]}": block
    for page in PAGES
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
}


def _run(block: str, name_server: str = "", **names: object) -> dict[str, object]:
    program = block.replace("127.0.0.1:9876", name_server)
    program = program.replace("name_server=...", f"name_server={name_server!r}")
    exec(compile(program, "page", "exec"), names)
    return names


def test_every_program_of_a_page_has_its_test() -> None:
    assert sorted(BLOCKS) == [
        "README.md: from pyrmq import Producer, PullConsumer",
        "README.md: from pyrmq.testing import cluster",
        "README.md: import pyrmq.spark",
        "consumer.md: from pyrmq import Producer, PullConsumer",
        "consumer.md: from pyrmq import Producer, PushConsumer",
        # tests/interop/test_simple_consumer.py runs it on a real broker, too.
        "consumer.md: from pyrmq import Producer, SimpleConsumer",
        "consumer.md: import asyncio",
        "filters.md: from pyrmq import routing",
        "filters.md: from pyrmq.errors import FilterError",
        "filters.md: from pyrmq.routing import Filter",
        "producer.md: def local(half):  # runs after the half is stored",
        'producer.md: with Producer(name_server="127.0.0.1:9876", group="shop") as producer:',
        "security.md: from pyrmq.remoting import Client, RequestHook",
        "spark.md: import pyrmq.spark",
        'spark.md: orders = spark.read.format("rocketmq").option("topic", "orders").load("/data")',
        'spark.md: rows = orders.selectExpr("body", "tags", "customer as shardingKey")',
        "testing.md: from pyrmq import Producer",
        "testing.md: from pyrmq import PullConsumer, Producer",
        "testing.md: import pyrmq",
        "testing.md: import pytest",
    ]


def test_the_readme_lists_every_page() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    names = {str(page.relative_to(ROOT)) for page in pages} - {"README.md"}
    index = PAGES[0].read_text(encoding="utf-8").partition("## Documentation")[2]
    assert {name for name in names if f"]({name})" not in index} == set()


def test_the_producer_and_consumer_of_the_readme_work(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster() as rocketmq:
        _run(BLOCKS["README.md: from pyrmq import Producer, PullConsumer"], rocketmq.name_server)
    sent, received = capsys.readouterr().out.strip().splitlines()
    assert "orders" in sent
    assert received == "b'two coffees'"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("from pyrmq import Producer, PushConsumer", "cooking tea\n"),
        ("import asyncio", "baked muffins\n"),
    ],
)
def test_the_listeners_of_the_consumer_page_run_on_a_fresh_server(name: str, said: str) -> None:
    with cluster() as rocketmq:
        program = BLOCKS[f"consumer.md: {name}"].replace("127.0.0.1:9876", rocketmq.name_server)
        command = [sys.executable, "-u", "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0


def test_the_readers_of_the_consumer_page_run_on_a_fresh_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyarrow")
    with cluster() as rocketmq:
        names = _run(
            BLOCKS["consumer.md: from pyrmq import Producer, PullConsumer"], rocketmq.name_server
        )
        _run(
            BLOCKS["consumer.md: from pyrmq import Producer, SimpleConsumer"], rocketmq.name_server
        )
    assert isinstance(names["batch"], MessageBatch)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[b'two coffees'] [None] [None] [0]"
    assert said[-1] == "serving two coffees"


def test_the_hook_of_the_security_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    client = _run(BLOCKS["security.md: from pyrmq.remoting import Client, RequestHook"])["client"]
    assert isinstance(client, Client)
    with cluster() as rocketmq, client:
        client.request(rocketmq.name_server, 206)
    assert capsys.readouterr().out == "206 0\n"


def test_the_cluster_of_the_readme_works(capsys: pytest.CaptureFixture[str]) -> None:
    _run(BLOCKS["README.md: from pyrmq.testing import cluster"])
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("from pyrmq import Producer", "broker-b\n"),
        ("import pyrmq", "True\n"),
        ("from pyrmq import PullConsumer, Producer", "b'one coffee'\n"),
    ],
)
def test_the_clusters_of_the_testing_page_work(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    _run(BLOCKS[f"testing.md: {name}"])
    assert capsys.readouterr().out == said


def test_the_filters_of_the_filters_page_hold(capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in BLOCKS if name.startswith("filters.md: ")]:
        _run(BLOCKS[name])
    said = "the comparison at character 18 of the filter has no result: the property is no integer"
    assert capsys.readouterr().out.startswith(said)


def test_the_errors_of_the_filters_page_are_raised() -> None:
    page = (ROOT / "docs" / "filters.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(.+)` \| (wrong filter at .+) \|$", page)
    assert len(rows) == 6
    for expression, text in rows:
        with pytest.raises(FilterError, match=f"^{re.escape(text)}$"):
            Filter(expression)


@pytest.mark.rocketmq(brokers=2)
def test_the_test_of_the_testing_page_passes(rocketmq: Cluster) -> None:
    names = _run(BLOCKS["testing.md: import pytest"])
    test = names["test_two_brokers_serve"]
    assert callable(test)
    test(rocketmq)


def test_the_lines_of_the_producers_page_are_delivered(
    rocketmq_session: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (name,) = [name for name in BLOCKS if name.startswith("producer.md: with Producer(")]
    lines = ["2026-01-01 tea", "2026-01-02 coffee"]
    _run(BLOCKS[name], rocketmq_session.name_server, Producer=Producer, lines=lines)
    assert capsys.readouterr().out.count("None SendResult(SEND_OK") == 2


def test_the_transaction_of_the_producers_page_is_committed(rocketmq_session: Cluster) -> None:
    debits: list[tuple[str, int]] = []
    database = SimpleNamespace(debit=lambda *debit: debits.append(debit), has=lambda _: True)
    address = rocketmq_session.name_server
    _run(
        BLOCKS["producer.md: def local(half):  # runs after the half is stored"],
        address,
        TransactionProducer=TransactionProducer,
        TransactionState=TransactionState,
        database=database,
    )
    assert [amount for _, amount in debits] == [10]
    with PullConsumer(name_server=address, group="bank-readers") as consumer:
        consumer.subscribe("transfers")
        assert next(iter(consumer)).body == b"10 euros"


def test_the_commands_of_the_readme_work(
    rocketmq_session: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_session.name_server)
    page = PAGES[0].read_text(encoding="utf-8")
    lines = re.findall(r"^pyrmq (?!server)[^\n]*", page, re.MULTILINE)
    commands = [part for line in lines for part in re.findall(r"pyrmq [^#,\n]*", line)]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)[1:]
        # Without --stop, `tail` runs until Ctrl-C.
        assert main([*words, "--stop"] if words[0] == "tail" else words) == 0
    sent, seen = re.findall(r"(?m)^.*two coffees$|^orders .*", capsys.readouterr().out)[:2]
    assert sent.startswith("orders")
    assert seen.endswith("two coffees")
