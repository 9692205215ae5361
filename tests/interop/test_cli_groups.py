"""`pyrmq group`, `message`, `dlq`, `tail`, `send` and `topic` on real servers."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, DeadLetter, PullConsumer, PushConsumer
from pyrmq._names import PERM_READ
from pyrmq.cli import main
from tests.interop.test_listeners import make_readable, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.cluster import Cluster

    Run = Callable[..., list[str]]

PAIRS = (("java", "JSON"),)


@pytest.fixture
def pyrmq(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return a function that runs a command on the cluster and returns the lines of its output."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)

    def run(*words: str, status: int = 0) -> list[str]:
        assert main(words) == status, capsys.readouterr().err
        return capsys.readouterr().out.splitlines()

    return run


def objects(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def contents(lines: list[str]) -> list[tuple[Any, ...]]:
    """Return body, keys and tags of each message that `pyrmq tail --json` printed."""
    return [(row["body"], row["keys"], row["tags"]) for row in objects(lines)]


def fill(pyrmq: Run, topic: str, count: int) -> None:
    """Make a topic of one queue, and send numbered messages, each with a key and a tag."""
    pyrmq("topic", "create", topic, "--queues", "1")
    for number in range(count):
        tag = "even" if number % 2 == 0 else "odd"
        pyrmq("send", topic, f"body {number}", "-k", f"key-{number}", "-t", tag)


def test_a_group_of_the_real_broker_is_shown_moved_and_deleted(
    pyrmq: Run, cluster: Cluster, name: str
) -> None:
    fill(pyrmq, name, 4)
    (row,) = objects(pyrmq("topic", "describe", name, "--json"))
    assert (row["broker"], row["messages"]) == (cluster.broker_name, 4)
    group = f"{name}-group"
    with PullConsumer(name_server=cluster.namesrv, group=group, auto_commit=None) as consumer:
        consumer.subscribe(name)
        seen = 0
        while seen < 4:
            messages = consumer.poll(timeout=20)
            assert messages
            seen += len(messages)
        consumer.commit()
        (described,) = objects(pyrmq("group", "describe", group, "--json"))
        assert described["subscriptions"][name] == "*"
        assert [one["client_id"] for one in described["members"]] == [consumer._control.client_id()]
    assert group in pyrmq("group", "list")
    assert "TOOLS_CONSUMER" not in pyrmq("group", "list")
    words = ("group", "lag", group, "--topic", name, "--json")
    assert [(row["queue"], row["lag"]) for row in objects(pyrmq(*words))] == [(0, 0)]
    (moved,) = objects(pyrmq("group", "seek", group, name, "first", "--json"))
    assert moved["offset"] == 0
    (lag,) = objects(pyrmq(*words))
    assert lag["lag"] == 4
    assert lag["seconds"] > 0
    where = ("--queue", f"{cluster.broker_name}:0", "--json")
    (moved,) = objects(pyrmq("group", "seek", group, name, "3", *where))
    assert moved["offset"] == 3
    assert pyrmq("group", "lag", group)[-1].startswith("1 messages behind")
    pyrmq("group", "lag", group, "--max", "0", status=1)
    if cluster.broker_version.startswith("4"):
        # These brokers have no POP.
        pyrmq("group", "mode", group, name, "pop", status=1)
        (mode,) = objects(pyrmq("group", "mode", group, name, "--json"))
        assert mode["mode"] == "not set"
    else:
        (mode,) = objects(pyrmq("group", "mode", group, name, "pop", "--json"))
        assert mode["mode"] == "pop"
        pyrmq("group", "mode", group, name, "pull")
        (mode,) = objects(pyrmq("group", "mode", group, name, "--json"))
        assert mode["mode"] == "pull"
    assert pyrmq("group", "delete", group) == [f"deleted {group}"]
    assert group not in pyrmq("group", "list")
    pyrmq("group", "describe", group, status=1)


def test_messages_of_the_real_broker_are_found_shown_and_tracked(
    pyrmq: Run, cluster: Cluster, name: str
) -> None:
    fill(pyrmq, name, 3)
    query = ("message", "query", name, "key-1", "--json")
    # The index follows the log.
    until(lambda: len(pyrmq(*query)) == 1)
    (found,) = objects(pyrmq(*query))
    assert (found["body"], found["broker"]) == ("body 1", cluster.broker_name)
    shown = pyrmq("message", "show", found["message_id"], "--topic", name)
    assert shown[-1] == "body 1"
    (by_place,) = [line.split()[-1] for line in shown if line.startswith("offset message id")]
    assert pyrmq("message", "show", by_place)[-1] == "body 1"
    group = f"{name}-group"
    track = ("message", "track", found["message_id"], "--topic", name, "--json")
    assert objects(pyrmq(*track)) == []
    with PullConsumer(name_server=cluster.namesrv, group=group, auto_commit=None) as consumer:
        consumer.subscribe(name)
        (queue,) = consumer.queues(name)
        while consumer.position(queue) < 3:
            consumer.poll(timeout=20)
        consumer.commit()
        until(lambda: objects(pyrmq(*track)) == [{"group": group, "state": "CONSUMED"}])
    assert objects(pyrmq(*track)) == [{"group": group, "state": "NOT_ONLINE"}]


def test_dead_letters_of_the_real_broker_are_given_to_their_group_again(
    pyrmq: Run, cluster: Cluster, name: str
) -> None:
    fill(pyrmq, name, 2)
    group, healthy, is_broken = f"{name}-group", list[str](), True

    def cook(body: str) -> None:
        if is_broken:
            raise DeadLetter("no coffee")
        healthy.append(body)

    consumer = PushConsumer(name_server=cluster.namesrv, group=group, rebalance=1.0)
    consumer.subscribe(name, cook)
    with consumer:
        until(lambda: consumer.stats().dead == 2)
        dead = ("dlq", "list", group, "--json")
        with Admin(name_server=cluster.namesrv) as admin:
            until(lambda: f"%DLQ%{group}" in admin.topics())
        if cluster.broker_version == "4.6.1":
            pyrmq("dlq", "list", group, status=1)
            make_readable(cluster, f"%DLQ%{group}")
            # Such a broker answers first and registers the permission then.
            with Admin(name_server=cluster.namesrv) as admin:
                until(lambda: bool(admin.route(f"%DLQ%{group}").queues[0].perm & PERM_READ))
        until(lambda: {row["body"] for row in objects(pyrmq(*dead))} == {"body 0", "body 1"})
        (one,) = objects(pyrmq(*dead, "--key", "key-1"))
        assert one["body"] == "body 1"
        is_broken = False
        resent = pyrmq("dlq", "resend", group, "--key", "key-1")
        assert resent == [f"sent 1 message to {group} again, of 2 dead letters"]
        until(lambda: healthy == ["body 1"])


def test_send_takes_what_tail_prints_of_the_real_broker(
    pyrmq: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has the order of the lines only if they go to a queue by its number.

    Without one, the first message and the others leave in two frames, and the real broker handles
    frames of a connection side by side: it has stored the second before the first.
    """
    fill(pyrmq, name, 6)

    def bodies(*words: str) -> list[str]:
        text = ("--from", "first", "--stop", "--format", "{body}")
        return pyrmq("tail", name, *text, *words)

    assert bodies() == [f"body {number}" for number in range(6)]
    assert bodies("--key", "key-5") == ["body 5"]
    assert bodies("--tags", "odd") == ["body 1", "body 3", "body 5"]
    assert bodies("--sql", "TAGS = 'even'") == ["body 0", "body 2", "body 4"]
    printed = pyrmq("tail", name, "--from", "first", "--stop", "--json")

    def copied(*where: str) -> list[tuple[Any, ...]]:
        copy = f"{name}-copy{len(where)}"
        pyrmq("topic", "create", copy, "--queues", "1")
        data = "".join(f"{line}\n" for line in printed).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert pyrmq("send", copy, "-", "--from-json", *where) == [f"sent 6 messages to {copy}"]
        return contents(pyrmq("tail", copy, "--from", "first", "--stop", "--json"))

    assert sorted(copied()) == contents(printed)
    assert copied("--queue", "0") == contents(printed)
