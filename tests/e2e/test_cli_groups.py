"""`pyrmq group`, `message`, `dlq` and the options of `tail`, by a person and by a program."""

from __future__ import annotations

import io
import json
import shlex
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.dashboards import FIGURES_OF_4_6_1, silent_broker
from tests.e2e.pairs import Pair
from tests.e2e.terminals import WIPE, on_a_terminal
from tests.e2e.timing import least
from tests.e2e.wire import V4_6_1, V5_5_0, ask, await_true

from pyrmq import (
    Admin,
    BrokerError,
    ConfigError,
    Credentials,
    Producer,
    PullConsumer,
    PushConsumer,
)
from pyrmq._admin.requests import on_each
from pyrmq._names import PERM_WRITE
from pyrmq.admin import ConsumeMode
from pyrmq.cli import main
from pyrmq.codes import RequestCode
from pyrmq.errors import NotSupported, PermissionDenied
from pyrmq.message import QueueId
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two brokers: each command must ask both."""
    with cluster(brokers=2) as running:
        yield running


@pytest.fixture
def pyrmq(two: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command on the cluster and returns the lines of its output."""
    monkeypatch.setenv("NAMESRV_ADDR", two.name_server)

    def run(*words: str, status: int = 0) -> list[str]:
        assert main(words) == status
        return capsys.readouterr().out.splitlines()

    return run


def objects(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def feed(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def send(two: Cluster, topic: str, count: int) -> None:
    """Send to every queue of both brokers in turn."""
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(name_server=two.name_server) as producer:
        for number in range(count):
            broker = two.brokers[number % 2].name
            producer.send(
                topic,
                f"body {number}",
                queue=QueueId(topic, broker, 0),
                keys=[f"key-{number}"],
                tags="even" if number % 2 == 0 else "odd",
                properties={"number": str(number)},
            )


def test_a_group_is_described_moved_and_deleted(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-groups", 6)
    options: dict[str, Any] = {
        "name_server": two.name_server,
        "group": "cli-kitchen",
        "start": "first",
    }
    with PullConsumer(**options, auto_commit=None) as consumer:
        consumer.subscribe("cli-groups")
        seen = 0
        while seen < 6:
            seen += len(consumer.poll(timeout=10))
        (described,) = objects(pyrmq("group", "describe", "cli-kitchen", "--json"))
        assert described["subscriptions"]["cli-groups"] == "*"
        assert [one["language"] for one in described["members"]] == ["PYTHON"]
        text = "\n".join(pyrmq("group", "describe", "cli-kitchen"))
        assert "subscribes to cli-groups: *" in text
        consumer.commit()
    lags = objects(pyrmq("group", "lag", "cli-kitchen", "--json"))
    assert [(row["broker"], row["lag"], row["seconds"]) for row in lags] == [
        (broker.name, 0, 0.0) for broker in two.brokers
    ]
    assert "cli-kitchen" in pyrmq("group", "list")
    assert "TOOLS_CONSUMER" not in pyrmq("group", "list")
    assert "TOOLS_CONSUMER" in pyrmq("group", "list", "--all")
    moved = objects(pyrmq("group", "seek", "cli-kitchen", "cli-groups", "first", "--json"))
    assert [row["offset"] for row in moved] == [0, 0]
    lags = objects(pyrmq("group", "lag", "cli-kitchen", "--topic", "cli-groups", "--json"))
    assert [row["lag"] for row in lags] == [3, 3]
    assert all(row["seconds"] > 0 for row in lags)
    assert pyrmq("group", "lag", "cli-kitchen")[-1].startswith("6 messages behind, ")
    name = two.brokers[1].name
    words = ("group", "seek", "cli-kitchen", "cli-groups", "2", "--queue", f"{name}:0", "--json")
    assert [(row["broker"], row["offset"]) for row in objects(pyrmq(*words))] == [(name, 2)]
    pyrmq("group", "seek", "cli-kitchen", "cli-groups", "2", status=2)
    pyrmq("group", "seek", "cli-kitchen", "cli-groups", "yesterday", status=2)
    assert pyrmq("group", "delete", "cli-kitchen") == ["deleted cli-kitchen"]
    assert "cli-kitchen" not in pyrmq("group", "list")
    pyrmq("group", "describe", "cli-kitchen", status=1)


def has_members(address: str) -> bool:
    """Whether a consumer of the group `kitchen` has reached a broker."""
    fields = {"consumerGroup": "kitchen"}
    return ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields).code == 0


def test_a_group_moves_at_brokers_that_leave_this_to_its_members() -> None:
    """As all brokers before 5.1 do: without members, the offsets are committed instead.

    A queue that the group has not committed changes nothing about that.
    """
    with (
        cluster(brokers=2, use_server_side_reset_offset=False) as running,
        Admin(name_server=running.name_server) as admin,
    ):
        send(running, "orders", 6)
        one, other = (QueueId("orders", broker.name, 0) for broker in running.brokers)

        def committed() -> tuple[int, int]:
            progress = admin.consumer_progress("kitchen", "orders")
            return progress[one].committed, progress[other].committed

        with PullConsumer(
            name_server=running.name_server, group="kitchen", start="first", auto_commit=None
        ) as consumer:
            consumer.subscribe("orders")
            seen = 0
            while seen < 6:
                seen += len(consumer.poll(timeout=10))
            consumer.commit()
            # The broker would move every queue, to the beginning.
            with pytest.raises(NotSupported, match=r"connected .*useServerSideResetOffset=true"):
                admin.reset_offsets("kitchen", "orders", 2, queue=one)
            with pytest.raises(ConfigError, match="no broker has the queue"):
                admin.reset_offsets("kitchen", "orders", 2, queue=one._replace(queue_id=9))
            assert committed() == (3, 3)
        assert admin.reset_offsets("kitchen", "orders", 2, queue=one) == {one: 2}
        assert committed() == (2, 3)
        assert admin.reset_offsets("kitchen", "orders", "first") == {one: 0, other: 0}
        assert committed() == (0, 0)
        now = datetime.now(UTC)
        assert admin.reset_offsets("kitchen", "orders", now) == {one: 3, other: 3}
        assert admin.reset_offsets("kitchen", "orders", "first", queue=one) == {one: 0}
        assert admin.reset_offsets("kitchen", "orders", "last", queue=one) == {one: 3}
        assert committed() == (3, 3)
        with pytest.raises(BrokerError, match="has 0 to 3"):
            admin.reset_offsets("kitchen", "orders", 4, queue=one)
        with pytest.raises(BrokerError, match="did you mean `kitchen`"):
            admin.reset_offsets("kitchne", "orders", 1, queue=one)
        with pytest.raises(BrokerError, match="did you mean `kitchen`"):
            admin.reset_offsets("kitchne", "orders", "first")
        admin.create_topic("orders", queues=2, brokers=[other.broker])
        new = other._replace(queue_id=1)
        moved = {one: 0, other: 0, new: 0}
        assert admin.reset_offsets("kitchen", "orders", "first") == moved
        with PullConsumer(
            name_server=running.name_server, group="kitchen", auto_commit=None
        ) as consumer:
            consumer.subscribe("orders")
            await_true(lambda: has_members(running.brokers[1].address))
            # The member learns of the new queue later.
            admin.create_topic("orders", queues=3, brokers=[other.broker])
            with pytest.raises(BrokerError, match=r"no offset of queue 2.*commit once") as caught:
                admin.reset_offsets("kitchen", "orders", "last")
            assert f"moved at: {one.broker}" in str(caught.value)


def test_a_queue_moves_while_a_broker_that_does_not_have_it_is_silent() -> None:
    with (
        cluster(use_server_side_reset_offset=False) as running,
        Admin(name_server=running.name_server, timeout=1) as admin,
    ):
        name = running.brokers[0].name
        admin.create_topic("orders", queues=1)
        with PullConsumer(name_server=running.name_server, group="kitchen") as consumer:
            consumer.subscribe("orders")
            await_true(lambda: has_members(running.brokers[0].address))
        queue = QueueId("orders", name, 0)
        with silent_broker(running.name_server):
            assert admin.reset_offsets("kitchen", "orders", "last", queue=queue) == {queue: 0}
            with pytest.raises(BrokerError, match="another one could not be asked"):
                admin.reset_offsets("kitchne", "orders", "last", queue=queue)


@pytest.mark.parametrize("is_by_broker", [True, False], ids=["by broker", "by members"])
def test_a_queue_of_members_stays_if_a_broker_does_not_show_its_options(
    tmp_path: Path, *, is_by_broker: bool
) -> None:
    """A broker that leaves resets to members would move every queue."""
    rights = {"actions": ["Sub", "Update", "Get"], "decision": "Allow"}
    entries = [{"resource": one, **rights} for one in ("Topic:orders", "Group:kitchen")]
    users, root = tmp_path / "users.json", tmp_path / "root.json"
    root.write_text(json.dumps({"accessKey": "root", "secretKey": "root-pass"}))
    known = [{"username": "root", "password": "root-pass", "userType": "Super"}]
    known.append({"username": "bob", "password": "bob-pass"})
    acls = [{"subject": "User:bob", "policies": [{"entries": entries}]}]
    users.write_text(json.dumps({"users": known, "acls": acls}))
    users.chmod(0o600)
    root.chmod(0o600)
    checks = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "auth_config_path": str(users),
        "inner_client_credentials_path": str(root),
        "use_server_side_reset_offset": is_by_broker,
    }
    running = Pair(tmp_path, [{}, checks, checks])
    given: dict[str, Any] = {"name_server": running.address}
    try:
        with Admin(**given, credentials=Credentials("root", "root-pass")) as admin:
            admin.create_topic("orders", queues=2, brokers=["broker1"])
        given["credentials"] = Credentials("bob", "bob-pass")
        queue = QueueId("orders", "broker1", 0)
        with Admin(**given) as admin:
            with PullConsumer(**given, group="kitchen") as consumer:
                consumer.subscribe("orders")
                code, fields = (
                    RequestCode.GET_CONSUMER_CONNECTION_LIST,
                    {"consumerGroup": "kitchen"},
                )
                at = running.brokers[0].address
                await_true(lambda: admin._client.request(at, code, fields).code == 0)
                with pytest.raises(PermissionDenied, match="permit this request, or stop"):
                    admin.reset_offsets("kitchen", "orders", "last", queue=queue)
            assert admin.reset_offsets("kitchen", "orders", "last", queue=queue) == {queue: 0}
    finally:
        running.stop()


def test_a_refusal_names_the_brokers_that_moved_the_group(two: Cluster) -> None:
    with (
        silent_broker(two.name_server, FIGURES_OF_4_6_1, V5_5_0),
        Admin(name_server=two.name_server) as admin,
    ):
        moved = two.brokers[0].name
        admin.create_topic("silent-1", queues=1, brokers=[moved])
        with PullConsumer(name_server=two.name_server, group="cli-half", start="first") as consumer:
            consumer.assign({QueueId("silent-1", moved, 0): 0})
            consumer.commit()
        with pytest.raises(NotSupported, match=f"moved at: {moved}") as caught:
            admin.reset_offsets("cli-half", "silent-1", "first")
        assert caught.value.address


def test_brokers_that_fail_differently_are_all_named(two: Cluster) -> None:
    one, other, away = (*(broker.address for broker in two.brokers), "127.0.0.1:1")
    with Admin(name_server=two.name_server) as admin:

        def work(address: str) -> None:
            if address != one:
                admin._request(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "cli-nowhere"})

        with pytest.raises(BrokerError) as caught:
            on_each(admin, [one, away, other], work, done="done at")
    text = str(caught.value)
    assert "GET_TOPIC_STATS_INFO" in text
    assert text.endswith(f"; no answer from a broker ({away}); done at: {two.brokers[0].name}")
    assert caught.value.address == other


def test_a_broker_without_pop_has_no_modes() -> None:
    """One before 4.9.1 does not answer requests about them."""
    with (
        cluster() as running,
        silent_broker(running.name_server, FIGURES_OF_4_6_1, V4_6_1),
        Admin(name_server=running.name_server) as admin,
    ):
        admin.create_topic("silent-1", brokers=[running.brokers[0].name])
        old = r"broker-silent \(.*\) is older than RocketMQ 5\.0"
        with pytest.raises(NotSupported, match=old):
            admin.set_consume_mode("kitchen", "silent-1", "pop")
        modes = admin.consume_modes("kitchen", "silent-1")
        names = running.brokers[0].name, "broker-silent"
        assert modes == dict.fromkeys(names, ConsumeMode(None, 0))


def test_a_group_that_no_broker_knows_is_an_error_with_the_nearest_name(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", two.name_server)
    send(two, "cli-unknown", 2)
    with PullConsumer(name_server=two.name_server, group="cli-waiters", start="first") as consumer:
        consumer.subscribe("cli-unknown")
        consumer.poll(timeout=10)
    for words in (
        ("group", "lag", "cli-waiter"),
        ("group", "lag", "cli-waiter", "--max", "0"),
        ("group", "lag", "cli-waiter", "--topic", "cli-unknown"),
        ("group", "describe", "cli-waiter"),
        ("group", "mode", "cli-waiter", "cli-unknown"),
        ("group", "delete", "cli-waiter"),
        ("dlq", "list", "cli-waiter"),
        ("dlq", "resend", "cli-waiter"),
        ("tail", "cli-unknown", "--group", "cli-waiter", "--stop"),
    ):
        assert main(words) == 1, words
        said = "no broker has the consumer group `cli-waiter`: did you mean `cli-waiters`?"
        assert said in capsys.readouterr().err, words


def test_a_group_with_offsets_and_no_settings_is_known(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-kept", 4)
    with PullConsumer(name_server=two.name_server, group="cli-keepers", start="first") as consumer:
        consumer.subscribe("cli-kept")
        read = 0
        while read < 4:
            read += len(consumer.poll(timeout=10))
        consumer.commit()
    pyrmq("group", "delete", "cli-keepers", "--keep-offsets")
    assert "cli-keepers" not in pyrmq("group", "list")
    assert pyrmq("group", "lag", "cli-keepers")[-1].startswith("0 messages behind")
    assert pyrmq("group", "delete", "cli-keepers") == ["deleted cli-keepers"]
    pyrmq("group", "delete", "cli-keepers", status=1)


def test_what_is_not_there_is_answered_at_once(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-quick", 1)
    with PullConsumer(name_server=two.name_server, group="cli-quick") as consumer:
        consumer.subscribe("cli-quick")
        consumer.poll(timeout=10)
    for status, words in (
        (0, ("dlq", "list", "cli-quick", "--json")),
        (1, ("tail", "cli-quack", "--stop")),
        (1, ("message", "query", "cli-quack", "key")),
        (1, ("topic", "describe", "cli-quack")),
    ):

        def run(words: tuple[str, ...] = words, status: int = status) -> float:
            began = time.monotonic()
            assert pyrmq(*words, status=status) == []
            return time.monotonic() - began

        # A consumer looks for a topic that is not there for more than a second.
        assert least(run, 1.0) < 1.0, words


def test_messages_are_found_shown_and_tracked(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-messages", 4)
    (found,) = objects(pyrmq("message", "query", "cli-messages", "key-1", "--json"))
    assert (found["body"], found["broker"]) == ("body 1", two.brokers[1].name)
    assert pyrmq("message", "query", "cli-messages", "key-1")[1].endswith("body 1")
    assert pyrmq("message", "query", "cli-messages", "key-1", "--since", "2099-01-01")[1:] == []
    shown = pyrmq("message", "show", found["message_id"], "--topic", "cli-messages")
    assert shown[-1] == "body 1"
    rows = dict(line.split(None, 1) for line in shown if line.startswith(("tags", "keys")))
    assert rows == {"keys": "key-1", "tags": "odd"}
    (by_place,) = [line.split()[-1] for line in shown if line.startswith("offset message id")]
    assert pyrmq("message", "show", by_place)[-1] == "body 1"
    pyrmq("message", "show", found["message_id"], status=2)
    pyrmq("message", "show", "0" * 32, "--topic", "cli-messages", status=1)
    track = ("message", "track", found["message_id"], "--topic", "cli-messages", "--json")
    assert objects(pyrmq(*track)) == []
    options: dict[str, Any] = {
        "name_server": two.name_server,
        "group": "cli-track",
        "start": "first",
    }
    with PullConsumer(**options, auto_commit=None) as consumer:
        consumer.subscribe("cli-messages")
        while consumer.position(consumer.queues("cli-messages")[1]) < 2:
            consumer.poll(timeout=10)
        assert objects(pyrmq(*track)) == [{"group": "cli-track", "state": "NOT_CONSUME_YET"}]
        consumer.commit()
        assert objects(pyrmq(*track)) == [{"group": "cli-track", "state": "CONSUMED"}]
    assert objects(pyrmq(*track)) == [{"group": "cli-track", "state": "NOT_ONLINE"}]


def test_dead_letters_are_listed_and_given_to_their_group_again(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-dead", 2)
    healthy: list[bytes] = []
    is_broken = True
    for broker in two.brokers:
        config = json.dumps({"groupName": "cli-cooks", "retryMaxTimes": 0}).encode()
        made = ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)
        assert made.code == 0
    consumer = PushConsumer(name_server=two.name_server, group="cli-cooks", start="first")

    @consumer.listener("cli-dead")
    def cook(body: bytes) -> None:
        if is_broken:
            raise ValueError("no coffee")
        healthy.append(body)

    with consumer:
        dead = ("dlq", "list", "cli-cooks", "--json")

        def two_are_dead() -> bool:
            with Admin(name_server=two.name_server) as admin:
                return "%DLQ%cli-cooks" in admin.topics() and len(objects(pyrmq(*dead))) == 2

        await_true(two_are_dead, 30)
        assert {row["body"] for row in objects(pyrmq(*dead))} == {"body 0", "body 1"}
        assert len(objects(pyrmq(*dead, "--key", "key-1"))) == 1
        is_broken = False
        resent = pyrmq("dlq", "resend", "cli-cooks", "--key", "key-1")
        assert resent == ["sent 1 message to cli-cooks again, of 2 dead letters"]
        await_true(lambda: healthy == [b"body 1"], 30)


def test_dead_letters_that_may_not_be_read_are_an_error_with_its_fix(
    two: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Apache's brokers before 4.9.2 create their topic so."""
    monkeypatch.setenv("NAMESRV_ADDR", two.name_server)
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("%DLQ%cli-closed", queues=1, perm=PERM_WRITE)
    with Producer(name_server=two.name_server) as producer:
        producer.send("%DLQ%cli-closed", b"letter")
    for verb in ("list", "resend"):
        assert main(["dlq", verb, "cli-closed"]) == 1
        error = capsys.readouterr().err
        assert "at broker-a, broker-b cannot be read" in error
        assert "may have been sent" not in error, "it did not begin"
    fix = shlex.split(error.partition("Fix: pyrmq ")[2])
    assert main(fix) == 0
    capsys.readouterr()
    assert main(["dlq", "list", "cli-closed", "--json"]) == 0
    (letter,) = objects(capsys.readouterr().out.splitlines())
    assert letter["body"] == "letter"


def test_a_long_resend_shows_its_progress_on_a_terminal(two: Cluster) -> None:
    count, group = 250, "cli-progress"
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic(f"%DLQ%{group}", queues=1)
    with Producer(name_server=two.name_server) as producer:
        producer.send_batch(f"%DLQ%{group}", [b"letter"] * count)
    shown = on_a_terminal("dlq", "resend", group, "-n", two.name_server)
    end = f"sent {count} messages to {group} again, of {count} dead letters"
    assert shown.split(WIPE) == ["", f"100 of {count}", f"200 of {count}", f"{end}\r\n"]
    few = on_a_terminal("dlq", "resend", group, "--max", "99", "-n", two.name_server)
    assert few.strip() == f"sent 99 messages to {group} again, of {count} dead letters"


def test_tail_begins_anywhere_and_filters(pyrmq: Run, two: Cluster) -> None:
    send(two, "cli-tail", 8)

    def bodies(*words: str) -> list[str]:
        lines = pyrmq("tail", "cli-tail", "--stop", "--format", "{body}", *words)
        return sorted(lines)

    assert bodies("--from", "first", "--key", "key-5") == ["body 5"]
    assert bodies("--from", "first", "--tags", "odd") == [f"body {at}" for at in (1, 3, 5, 7)]
    assert bodies("--from", "first", "--sql", "number = '6'") == ["body 6"]
    assert bodies("--from", "first", "--sql", "number >= 6") == ["body 6", "body 7"]
    assert len(bodies("--since", "1h")) == 8
    assert bodies("--since", "2099-01-01") == []
    assert bodies("--offset", "3", "--queue", "0") == ["body 6", "body 7"]
    pyrmq("tail", "cli-tail", "--offset", "3", "--stop", status=2)
    pyrmq("tail", "cli-tail", "--queue", "9", "--stop", status=2)
    pyrmq("tail", "cli-tail", "--from", "first", "--sql", "number >", "--stop", status=2)
    pyrmq("tail", "cli-tail", "--from", "first", "--format", "{no}", "--stop", status=2)
    with PullConsumer(name_server=two.name_server, group="cli-reader", auto_commit=None) as reader:
        queues = reader.queues("cli-tail")
        reader.assign(dict.fromkeys(queues, 0))
        read = 0
        while read < 8:
            read += len(reader.poll(timeout=10))
        for queue in queues:
            reader.seek(queue, 3)
        reader.commit()
    with Admin(name_server=two.name_server) as admin:
        for queue in queues:
            admin.reset_offsets("cli-reader", "cli-tail", 3, queue=queue)
    assert bodies("--group", "cli-reader") == ["body 6", "body 7"]
    assert bodies("--group", "cli-reader") == ["body 6", "body 7"], "it committed nothing"


def test_send_takes_what_tail_prints(
    pyrmq: Run, two: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(two, "cli-from", 3)
    with Producer(name_server=two.name_server) as producer:
        producer.send("cli-from", b"\xff\x00", keys=["bytes"], sharding_key="table-7")
    printed = pyrmq("tail", "cli-from", "--from", "first", "--stop", "--json")
    assert len(printed) == 4
    pyrmq("topic", "create", "cli-to", "--queues", "1")
    feed(monkeypatch, printed)
    assert pyrmq("send", "cli-to", "-", "--from-json") == ["sent 4 messages to cli-to"]

    def wanted(row: dict[str, Any]) -> Any:  # noqa: ANN401 - compared only
        number = row["properties"].get("number")
        return row["body"], row["keys"], row["tags"], number, row.get("body_base64")

    copied = objects(pyrmq("tail", "cli-to", "--from", "first", "--stop", "--json"))
    assert sorted(map(str, map(wanted, copied))) == sorted(map(str, map(wanted, objects(printed))))
    (sharded,) = [row for row in copied if row["keys"] == ["bytes"]]
    assert sharded["properties"]["__SHARDINGKEY"] == "table-7"
    feed(monkeypatch, ["no object"])
    pyrmq("send", "cli-to", "-", "--from-json", status=2)
