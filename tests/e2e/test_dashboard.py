"""`pyrmq dashboard` over HTTP: what it shows, what it refuses, what it changes."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from tests.e2e.dashboards import FIGURES_OF_4_6_1, TOKEN, Page, dashboard, silent_broker
from tests.e2e.wire import V4_6_1, await_true

from pyrmq import Admin, DeadLetter, Producer, PullConsumer, PushConsumer
from pyrmq.cli import main
from pyrmq.dashboard import __file__ as package
from pyrmq.dashboard.guard import Permissions
from pyrmq.dashboard.serving import permissions_for
from pyrmq.message import ReceivedMessage  # noqa: TC001 - a listener's annotation is read
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

STATIC = Path(package).parent / "static"
HOSTS = frozenset({"127.0.0.1", "localhost"})
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    with cluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def page(two: Cluster) -> Iterator[Page]:
    with dashboard(two.name_server, Permissions(HOSTS, TOKEN, may_write=True)) as found:
        yield found


@pytest.fixture(scope="module")
def sent(two: Cluster) -> str:
    """Send messages to `menu`, let the group `kitchen` take and give up some; return one's id."""
    with Admin(name_server=two.name_server) as admin:
        admin.create_topic("menu", queues=2)
    with Producer(name_server=two.name_server, trace=True) as producer:
        ids = [
            producer.send("menu", f"{SCRIPT} {number}", keys=f"order-{number}").message_id
            for number in range(10)
        ]

    def take(message: ReceivedMessage) -> None:
        if message.keys == ["order-3"]:
            raise DeadLetter("burnt")

    consumer = PushConsumer(name_server=two.name_server, group="kitchen", start="first", trace=True)
    consumer.subscribe("menu", take)
    with consumer, Admin(name_server=two.name_server) as admin:
        await_true(lambda: "%DLQ%kitchen" in admin.topics(), 20)
        await_true(lambda: len(admin.trace_message(ids[0])) == 3, 20)
    return ids[0]


def test_the_overview_has_both_brokers_with_rates(page: Page, sent: str) -> None:
    await_true(lambda: "in" in page.get("overview")["brokers"][0], 20)
    tree = page.get("overview")
    assert [one["broker"] for one in tree["brokers"]] == ["broker-a", "broker-b"]
    assert all(one["ready"] and one["memory"] > 0 for one in tree["brokers"])
    assert (tree["topics"], tree["groups"], tree["write"]) == (1, 1, True)
    assert tree["history"]
    assert tree["error"] == ""


def test_topics_are_found_by_a_part_of_their_name(page: Page, sent: str) -> None:
    (row,) = page.get("topics", search="MEN")["rows"]
    assert (row["topic"], row["messages"], row["read_queues"]) == ("menu", 10, 4)
    assert row["brokers"] == ["broker-a", "broker-b"]
    assert page.get("topics", search="nix")["total"] == 0
    assert page.get("topics", system=1)["total"] > page.get("topics")["total"]
    assert page.get("topics", page=1)["rows"] == []
    described = page.get("topic", topic="menu")
    assert sum(one["next"] for one in described["queues"]) == 10
    assert described["groups"] == [{"group": "kitchen", "lag": 0, "seconds": 0.0}]


def test_groups_are_shown_with_their_lag(page: Page, two: Cluster, sent: str) -> None:
    with PullConsumer(name_server=two.name_server, group="slow", start="first") as consumer:
        consumer.subscribe("menu")
        taken = len(consumer.poll(4, 20))
        consumer.commit()
        await_true(lambda: page.get("groups", search="slo")["rows"], 20)
        (row,) = page.get("groups", search="SLO")["rows"]
        assert (row["lag"], row["members"], row["topics"]) == (10 - taken, 1, ["menu"])
        described = page.get("group", group="slow")
    assert described["subscriptions"]["menu"] == "*"
    assert sum(one["messages"] for one in described["queues"]) == 10 - taken


def test_a_message_has_its_track_and_trace(page: Page, sent: str) -> None:
    tree = page.get("message", id=sent, topic="menu")
    # The page writes it as text; the server does not change it.
    assert tree["text"] == f"{SCRIPT} 0"
    assert {"group": "kitchen", "state": "NOT_ONLINE"} in tree["track"]
    assert [step["kind"] for step in tree["trace"]] == ["Pub", "SubBefore", "SubAfter"]
    (found,) = page.get("messages", topic="menu", key="order-0")
    assert found["id"] == sent
    assert page.get("message", id=found["offset_id"])["id"] == sent
    newest = page.get("newest", topic="menu", count=3)
    times = [one["stored_ms"] for one in newest]
    assert len(times) == 3
    assert times == sorted(times, reverse=True)


def test_a_body_that_is_no_text_is_shown_as_bytes(page: Page, two: Cluster) -> None:
    with Producer(name_server=two.name_server) as producer:
        producer.send("menu", b"\xff\x00" * 4000, keys="bytes")
    await_true(lambda: page.get("messages", topic="menu", key="bytes"), 20)
    (row,) = page.get("messages", topic="menu", key="bytes")
    tree = page.get("message", id=row["id"], topic="menu")
    assert tree["binary"].startswith("/wD/AP8A")
    assert tree["cut"] is True
    assert tree["size"] == 8000


def test_an_invented_id_makes_nobody_dial_its_address(page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.5)
        port = other.getsockname()[1]
        invented = f"7F000001{port:08X}{0:016X}"
        status, tree, _ = page.send("GET", f"/api/message?id={invented}")
        assert status == 400
        assert "give its topic" in tree["error"]
        with pytest.raises(TimeoutError):
            other.accept()


def test_dead_letters_are_sent_again(page: Page, two: Cluster, sent: str) -> None:
    assert page.get("dead-letter-groups")[0]["group"] == "kitchen"
    (letter,) = page.get("newest", topic="%DLQ%kitchen")
    assert letter["keys"] == ["order-3"]
    taken: list[str] = []
    consumer = PushConsumer(name_server=two.name_server, group="kitchen")
    consumer.subscribe("menu", lambda message: taken.extend(message.keys))
    with consumer:
        ids = [letter["offset_id"], "no such"]
        status, answer = page.post("resend", {"group": "kitchen", "ids": ids})
        assert (status, answer["sent"], list(answer["failed"])) == (200, 1, ["no such"])
        await_true(lambda: "order-3" in taken, 20)


def test_groups_move_and_topics_are_created(page: Page, two: Cluster, sent: str) -> None:
    assert page.post("create-topic", {"topic": "drinks", "queues": 3})[0] == 200
    assert len(page.get("topic", topic="drinks")["queues"]) == 6
    status, answer = page.post("seek", {"group": "kitchen", "topic": "menu", "to": "first"})
    assert status == 200
    assert [one["offset"] for one in answer["queues"]] == [0, 0, 0, 0]
    status, answer = page.post("seek", {"group": "kitchen", "topic": "menu", "to": "up"})
    assert status == 400
    assert "must be first, last" in answer["error"]


def test_options_change_and_secrets_do_not_show(page: Page, two: Cluster) -> None:
    change = {"broker": "broker-b", "key": "fileReservedTime", "value": "48"}
    assert page.post("set-option", change) == (200, change)
    assert page.get("options", broker="broker-b")["options"]["fileReservedTime"] == "48"
    assert page.get("options", broker="broker-a")["options"]["fileReservedTime"] != "48"
    status, answer = page.post("set-option", change | {"key": "fileReservedTim"})
    assert status == 400
    assert "no option" in answer["error"]
    for key, value in page.get("options")["options"].items():
        assert value in ("", "(hidden)") or not re.search("secret|password|credential", key.lower())


def test_changes_need_the_token_and_a_page_that_may_change(page: Page, two: Cluster) -> None:
    change = {"topic": "no-topic", "queues": 1}
    for token in ("", "x", TOKEN[:-1], TOKEN + "x", "ü"):
        data = json.dumps(change).encode()
        connection = HTTPConnection("127.0.0.1", page.port, timeout=20)
        headers = {"x-pyrmq-token": token.encode("latin-1")}
        connection.request("POST", "/api/create-topic", data, headers)
        assert connection.getresponse().status == 401
        connection.close()
    with dashboard(two.name_server, permissions_for("127.0.0.1", [], write=False)) as reads:
        status, answer = reads.post("create-topic", change)
        assert (status, "--write" in answer["error"]) == (403, True)
        assert reads.get("overview")["write"] is False
    assert "no-topic" not in page.get("topic-names")


def test_elsewhere_than_on_loopback_reading_needs_the_token(two: Cluster) -> None:
    permissions = permissions_for("10.1.2.3", [], write=False)
    assert permissions.token is not None
    assert permissions.reads_need_token
    with dashboard(two.name_server, permissions) as page:
        assert page.send("GET", "/api/overview")[0] == 401
        assert page.send("GET", "/api/overview", x_pyrmq_token=permissions.token)[0] == 200
        assert page.send("GET", "/")[0] == 200
        assert page.post("create-topic", {"topic": "t", "queues": 1}, permissions.token)[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_host_name_is_refused(page: Page, host: str) -> None:
    for path in ("/", "/static/app.js", "/api/overview"):
        assert page.send("GET", path, Host=host)[0] == 421
    assert page.send("GET", "/", Host=f"LOCALHOST:{page.port}")[0] == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("topic", "`topic` is missing"),
        ("topics?page=-1", "must be a number"),
        ("newest?topic=menu&count=100000", "must be a number from 0 to 200"),
        ("newest?topic=menu&count=0000000000300", "must be a number from 0 to 200"),
        ("newest?topic=menu&count=" + "1" * 5000, "must be a number from 0 to 200"),
        ("topic?topic=no-such", "does not exist"),
        ("options?broker=nix", "no master named `nix`"),
        ("message?id=%F0%9F%8D%B5", "no broker has"),
    ],
)
def test_a_wrong_request_is_answered_with_its_cause(page: Page, path: str, words: str) -> None:
    status, tree, _ = page.send("GET", f"/api/{path}")
    assert 400 <= status < 600
    assert words in tree["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"topic": 3}', 400),
        (b'{"topic": "t", "queues": true}', 400),
        (b'{"topic": "\\ud800", "queues": 1}', 400),
        (b'{"topic": "t", "queues": 100000000000000000000}', 400),
        (b" " * 2_000_000, 413),
    ],
)
def test_a_wrong_body_is_refused(page: Page, body: bytes, status: int) -> None:
    answer = page.send("POST", "/api/create-topic", body, x_pyrmq_token=TOKEN)
    assert answer[0] == status
    assert answer[1]["error"]


@pytest.mark.parametrize("to", ["²", "9" * 20, "253402300800000", "-1", "1" * 5000])
def test_a_time_that_is_none_is_refused(page: Page, sent: str, to: str) -> None:
    status, answer = page.post("seek", {"group": "kitchen", "topic": "menu", "to": to})
    assert status == 400
    assert "must be first, last" in answer["error"]


def test_the_value_of_a_secret_option_is_not_logged(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    change = {"broker": "broker-b", "key": "tls.server.keyPassword", "value": "hush-hush"}
    with caplog.at_level(logging.INFO, "pyrmq"):
        assert page.post("set-option", change)[0] == 400
    assert "tls.server.keyPassword" in caplog.text
    assert "hush-hush" not in caplog.text


def test_one_broker_that_is_silent_does_not_take_the_others_away() -> None:
    with cluster(brokers=2) as running, silent_broker(running.name_server):
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("menu", brokers=["broker-a"])
        with dashboard(running.name_server, Permissions(HOSTS), timeout=1.0) as page:
            await_true(lambda: len(page.get("overview")["brokers"]) == 3, 20)
            tree = page.get("overview")
            (silent,) = (one for one in tree["brokers"] if "put" not in one)
            assert silent["broker"] == "broker-silent"
            assert silent["error"]
            assert (tree["error"], tree["topics"]) == ("", 1)
            topics = page.get("topics")
            assert [row["topic"] for row in topics["rows"]] == ["menu"]
            assert list(topics["errors"]) == ["broker-silent"]
            assert list(page.get("groups")["errors"]) == ["broker-silent"]


@pytest.mark.nightly
def test_the_page_is_quick_while_others_wait_for_brokers() -> None:
    with (
        cluster() as running,
        silent_broker(running.name_server) as silent,
        dashboard(running.name_server, Permissions(HOSTS), timeout=3.0) as page,
    ):
        path = f"/api/options?broker={silent}"
        waiting = [Thread(target=lambda: page.send("GET", path)) for _ in range(60)]
        for thread in waiting:
            thread.start()
        began = time.monotonic()
        assert page.send("GET", "/static/app.js")[0] == 200
        assert time.monotonic() - began < 2
        for thread in waiting:
            thread.join()


def test_figures_that_json_lacks_are_shown_as_unknown() -> None:
    table = {"msgPutTotalTodayNow": "NaN", "msgGetTotalTodayNow": "1e999", "commitLogDiskRatio": 1}
    with (
        cluster() as running,
        silent_broker(running.name_server, {"table": table}),
        dashboard(running.name_server, Permissions(HOSTS), timeout=1.0) as page,
    ):
        await_true(lambda: len(page.get("overview")["brokers"]) == 2, 20)
        rows = {row["broker"]: row for row in page.get("overview")["brokers"]}
        odd = rows["broker-silent"]
        assert (odd["put"], odd["got"], odd["disk"]) == (None, None, 1)
        assert rows["broker-a"]["put"] >= 0


def test_a_broker_that_does_not_answer_what_it_does_not_know_is_shown() -> None:
    with (
        cluster() as running,
        silent_broker(running.name_server, FIGURES_OF_4_6_1, V4_6_1),
        dashboard(running.name_server, Permissions(HOSTS), timeout=1.0) as page,
    ):
        await_true(lambda: len(page.get("overview")["brokers"]) == 2, 20)
        rows = {row["broker"]: row for row in page.get("overview")["brokers"]}
        old = rows["broker-silent"]
        assert (old["ready"], old["version"], old["put"]) == (True, "4.6.1", 5)
        assert "error" not in old


def test_the_page_is_small_and_allows_no_inline_code(page: Page) -> None:
    _, html, headers = page.send("GET", "/")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = html.decode()
    assert not re.search(r"\son\w+=|style=|<style|javascript:|<script(?![^>]*\ssrc=)", text)
    names = set(re.findall(r"/static/([\w.]+)", text))
    assert names | {"index.html"} == {path.name for path in STATIC.iterdir()}
    total = len(html)
    for name in names:
        status, data, headers = page.send("GET", f"/static/{name}")
        assert (status, headers["x-content-type-options"]) == (200, "nosniff")
        assert b"innerHTML" not in data
        total += len(data)
    assert total < 300_000
    assert page.send("GET", "/static/..%2fguard.py")[0] == 404


def test_without_a_cluster_it_says_so_and_goes_on_once_there_is_one() -> None:
    with cluster() as running:
        running.name_servers[0].stop()
        running.stop_broker()
        permissions = Permissions(HOSTS)
        with dashboard(running.name_server, permissions, timeout=1.0) as page:
            assert "no name server answered" in page.get("overview")["error"]
            status, tree, _ = page.send("GET", "/api/topics")
            assert (status, "no name server answered" in tree["error"]) == (503, True)
            running.start()
            await_true(lambda: page.get("overview")["brokers"], 20)
            assert page.get("overview")["error"] == ""


def test_the_command_prints_its_address_and_ends_with_sigterm(two: Cluster) -> None:
    command = [sys.executable, "-m", "pyrmq", "dashboard", "-n", two.name_server, "--port", "0"]
    with subprocess.Popen(
        [*command, "--write"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"ready: http://127\.0\.0\.1:(\d+)/#token=([\w-]{32})\n", line)
        assert match is not None, line
        page = Page(int(match[1]))
        assert page.get("overview")["error"] == ""
        assert page.post("create-topic", {"topic": "later", "queues": 1}, match[2])[0] == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_and_a_missing_extra_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["dashboard", "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    find = "pyrmq.dashboard.find_spec"
    monkeypatch.setattr(find, lambda name: None)
    assert main(["dashboard"]) == 2
    assert "pip install 'pyrmq-rocketmq[dashboard]'" in capsys.readouterr().err
