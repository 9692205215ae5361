"""The command line on a running cluster, used by a person and by a program."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import PullConsumer
from pyrmq.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.testing import Cluster


@pytest.fixture
def pyrmq(
    rocketmq_session: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Return a function that runs a command on the cluster and returns the lines of its output."""
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_session.name_server)

    def run(*words: str, status: int = 0) -> list[str]:
        assert main(words) == status
        return capsys.readouterr().out.splitlines()

    return run


def objects(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_a_topic_is_created_described_listed_and_deleted(pyrmq: Callable[..., list[str]]) -> None:
    assert pyrmq("topic", "create", "cli-a", "--queues", "2") == [
        "created cli-a with 2 queues on each broker"
    ]
    lines = pyrmq("topic", "list")
    assert lines[0].split("  ")[0] == "topic"
    (row,) = [line for line in lines if line.startswith("cli-a ")]
    assert row.split()[1:4] == ["broker-a", "2", "2"]
    assert not [line for line in lines if line.startswith("TBW102")]
    assert [line for line in pyrmq("topic", "list", "--all") if line.startswith("TBW102")]
    assert "cli-a" in pyrmq("topic", "list", "--names")
    described = pyrmq("topic", "describe", "cli-a")
    assert len(described) == 4
    assert described[-1] == "0 messages; consumer groups: none"
    assert pyrmq("topic", "delete", "cli-a") == ["deleted cli-a"]
    assert "cli-a" not in pyrmq("topic", "list", "--names")


def test_programs_get_json(pyrmq: Callable[..., list[str]]) -> None:
    assert objects(pyrmq("topic", "create", "cli-b", "--json")) == [{"topic": "cli-b"}]
    (topic,) = [t for t in objects(pyrmq("topic", "list", "--json")) if t["topic"] == "cli-b"]
    assert topic["read_queues"] == 8
    sent = objects(pyrmq("send", "cli-b", "one", "--json", "--queue", "3", "-k", "k", "-t", "t"))
    assert (sent[0]["queue"], sent[0]["offset"], sent[0]["status"]) == (3, 0, "SEND_OK")
    queues = objects(pyrmq("topic", "describe", "cli-b", "--json"))
    assert [queue["messages"] for queue in queues] == [0, 0, 0, 1, 0, 0, 0, 0]
    (seen,) = objects(pyrmq("tail", "cli-b", "--from", "first", "--count", "1", "--json"))
    assert (seen["body"], seen["keys"], seen["tags"]) == ("one", ["k"], "t")
    assert seen["message_id"] == sent[0]["message_id"]


def test_lines_of_standard_input_are_messages(
    pyrmq: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pyrmq("topic", "create", "cli-c", "--queues", "1")
    lines = [f"line {number}" for number in range(2500)]
    text = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", text)
    assert pyrmq("send", "cli-c", "-", "--queue", "0") == ["sent 2500 messages to cli-c"]
    for _ in range(2):
        # Repeated calls move no group's progress.
        seen = pyrmq("tail", "cli-c", "--from", "first", "--stop")
        assert [line.split("  ", 1)[1] for line in seen] == lines
    (first,) = pyrmq("tail", "cli-c", "--from", "first", "--count", "1")
    assert first.endswith("line 0")
    assert pyrmq("tail", "cli-c", "--from", "last", "--stop") == []


def test_tail_begins_where_it_was_told_whatever_other_tools_have_committed(
    pyrmq: Callable[..., list[str]], rocketmq_session: Cluster
) -> None:
    pyrmq("topic", "create", "cli-f", "--queues", "1")
    for body in ("one", "two"):
        pyrmq("send", "cli-f", body)
    with PullConsumer(
        name_server=rocketmq_session.name_server, group="TOOLS_CONSUMER", auto_commit=None
    ) as tool:
        (queue,) = tool.queues("cli-f")
        tool.assign({queue: 0})
        assert len(tool.poll(1, timeout=10)) == 1
        tool.commit()
        assert len(pyrmq("tail", "cli-f", "--from", "first", "--stop")) == 2
        assert pyrmq("tail", "cli-f", "--from", "last", "--stop") == []
        assert tool.committed(queue) == 1


def test_send_says_where_the_message_is(pyrmq: Callable[..., list[str]]) -> None:
    pyrmq("topic", "create", "cli-d", "--queues", "1")
    header, row = pyrmq("send", "cli-d", "two coffees", "--property", "table=7")
    assert header.split()[:4] == ["topic", "broker", "queue", "offset"]
    assert row.split()[:4] == ["cli-d", "broker-a", "0", "0"]
    (seen,) = pyrmq("tail", "cli-d", "--from", "first", "--stop")
    assert seen == "broker-a 0:0  two coffees"


def test_tail_filters_by_tag(pyrmq: Callable[..., list[str]]) -> None:
    pyrmq("topic", "create", "cli-e", "--queues", "1")
    for tag in ("a", "b", "a"):
        pyrmq("send", "cli-e", tag, "-t", tag)
    lines = pyrmq("tail", "cli-e", "--from", "first", "--tags", "a", "--count", "2")
    assert [line.split()[-1] for line in lines] == ["a", "a"]


def test_an_unknown_topic_is_one_line_and_a_status(
    pyrmq: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (("topic", "describe", "nowhere"), ("tail", "nowhere"), ("topic", "delete", "no")):
        assert main(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert words[-1] in line


def test_a_wrong_property_is_refused(
    pyrmq: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["send", "cli-f", "x", "--property", "table"]) == 2
    assert "`--property` is 'table': it must be KEY=VALUE" in capsys.readouterr().err


def test_a_name_server_that_is_away_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "-n", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
