"""Planning's requests to a real cluster of two brokers, without Spark."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, arrow
from pyrmq._tables.brokers.remote import RemoteCluster, _TopicRequest
from pyrmq._tables.errors import BrokerAway
from pyrmq._tables.offsets import Bounds, Queue
from pyrmq._tables.options.topic_options import Options
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import (
    BrokerBusy,
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    TopicNotFound,
)
from pyrmq.remoting import Command
from tests.spark import checks
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyrmq._tables.planning.cluster import ClusterSnapshot
    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.rocketmq(brokers=2, faults=True), pytest.mark.timeout(120)]
NUMBERS = itertools.count(1)


class Site:
    """A topic of one queue on each of two brokers, and the cluster as planning sees it."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.name = f"Remote{next(NUMBERS)}"
        self.options = Options.parse(
            {"nameServer": running.name_server, "topic": self.name, "timeoutMs": "20000"},
            batch=False,
        )
        self.remote = RemoteCluster(self.options)
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic(self.name, queues=1)
        self.queues = tuple(Queue(self.name, broker.name, 0) for broker in running.brokers)

    def send(self, broker: int, texts: list[str]) -> None:
        """Send to one broker."""
        address = self.running.brokers[broker].address
        topic = Topic(self.name, self.running.name_server, address)
        topic.send(0, texts)
        topic.connections.close()

    def snapshot(self) -> ClusterSnapshot:
        """Take a snapshot, as a stream that has read from both brokers."""
        return self.remote.snapshot([self.name], expected=self.queues, lenient=True)

    def await_snapshot(self, condition: Callable[[ClusterSnapshot], bool]) -> ClusterSnapshot:
        """Take snapshots until one shows what is expected."""
        deadline = time.monotonic() + 30
        while not condition(snapshot := self.snapshot()):
            assert time.monotonic() < deadline, snapshot
            time.sleep(0.05)
        return snapshot


@pytest.fixture
def site(rocketmq_session: Cluster) -> Iterator[Site]:
    """The topic of a test."""
    for broker in rocketmq_session.brokers:
        broker.start()
        broker.network.heal()
    site = Site(rocketmq_session)
    yield site
    site.remote.close()


def test_a_stopped_broker_is_away_and_the_other_is_not(site: Site) -> None:
    a, b = site.queues
    site.send(0, ["one", "two"])
    site.send(1, ["three"])
    site.await_snapshot(lambda snapshot: snapshot.bounds == {a: Bounds(0, 2), b: Bounds(0, 1)})
    site.running.brokers[1].stop()
    snapshot = site.await_snapshot(lambda snapshot: "broker-b" in snapshot.away)
    assert snapshot.bounds == {a: Bounds(0, 2)}
    assert snapshot.away["broker-b"].address == site.running.brokers[1].address
    # A new process that finds the broker in no route knows it by its offsets only.
    other = RemoteCluster(site.options)
    snapshot = other.snapshot([site.name], expected=site.queues, lenient=True)
    assert snapshot.bounds == {a: Bounds(0, 2)}
    assert set(snapshot.away) == {"broker-b"}
    assert not snapshot.gone
    other.close()
    site.running.brokers[1].start()
    site.await_snapshot(lambda snapshot: snapshot.bounds == {a: Bounds(0, 2), b: Bounds(0, 1)})


def test_a_silent_broker_does_not_hold_up_the_other(site: Site) -> None:
    a, b = site.queues
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == {a, b})
    site.running.brokers[1].network.silence()
    begun = time.monotonic()
    snapshots = [site.snapshot() for _ in range(50)]
    # Fifty times the request's own time would be 50 s.
    assert time.monotonic() - begun < 20
    assert all(set(snapshot.bounds) == {a} for snapshot in snapshots)
    assert set(snapshots[-1].away) == {"broker-b"}
    site.running.brokers[1].network.heal()
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == {a, b})


def test_a_batch_read_names_the_broker_that_does_not_answer(site: Site) -> None:
    both = set(site.queues)
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == both)
    broker = site.running.brokers[1]
    broker.network.silence()
    text = rf"broker broker-b \({broker.address}\) does not answer: .*; waited 1 s \(timeoutMs\)"
    with pytest.raises(BrokerAway, match=text):
        arrow.read(site.name, name_server=site.running.name_server, timeout=1)
    broker.network.heal()
    assert arrow.read(site.name, name_server=site.running.name_server).num_rows == 0


def test_a_topic_deleted_on_one_broker_is_gone_there_only(site: Site) -> None:
    a, b = site.queues
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == {a, b})
    Topic(site.name, site.running.name_server, site.running.brokers[1].address).delete()
    snapshot = site.await_snapshot(lambda snapshot: bool(snapshot.gone))
    assert snapshot.gone == {(site.name, "broker-b")}
    assert set(snapshot.bounds) == {a}
    assert not snapshot.away


def three_topics(site: Site, *, queues: int) -> list[str]:
    """Make three topics on both brokers; return their names."""
    names = [f"{site.name}{letter}" for letter in "ABC"]
    with Admin(name_server=site.running.name_server) as admin:
        for name in names:
            admin.create_topic(name, queues=queues)
    site.await_snapshot(lambda snapshot: len(snapshot.bounds) == 2)
    return names


def test_a_broker_is_asked_once_for_many_topics(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real broker takes no notice of the body, and is asked for each topic."""
    names = three_topics(site, queues=2)
    asked: list[int] = []
    send, is_real = site.remote._request, False

    def request(code: RequestCode, requests: list[Any], fields: list[Any], bodies: Any = ()) -> Any:  # noqa: ANN401
        asked.append(len(requests))
        return send(code, requests, fields, () if is_real else bodies)

    def bounds(remote: RemoteCluster) -> tuple[ClusterSnapshot, int]:
        monkeypatch.setattr(remote, "_request", request)
        asked.clear()
        snapshot = remote.snapshot(names, lenient=True)
        return snapshot, sum(asked)

    whole, count = bounds(site.remote)
    assert (len(whole.bounds), count) == (12, 2)
    # The first one of many, gone on one broker only.
    Topic(names[0], site.running.name_server, site.running.brokers[1].address).delete()
    snapshot, count = bounds(site.remote)
    assert snapshot.gone == {(names[0], "broker-b")}
    assert set(snapshot.bounds) == {q for q in whole.bounds if q[:2] != (names[0], "broker-b")}
    assert count == 2 + 3
    assert bounds(site.remote)[1] == 2 + 1, "it is not the first one any more"
    is_real = True
    other = RemoteCluster(site.options)
    send = other._request
    seen, count = bounds(other)
    assert (seen.bounds, seen.gone, count) == (snapshot.bounds, snapshot.gone, 2 + 2 + 3)
    assert bounds(other)[1] == 3 + 3
    other.close()


def test_a_broker_that_refuses_many_queues_is_asked_for_fewer_topics(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is 65,536 queues; here it is two topics."""
    names = three_topics(site, queues=1)
    asked: list[list[int]] = []
    send = site.remote._request

    def request(code: RequestCode, requests: list[Any], fields: list[Any], bodies: Any = ()) -> Any:  # noqa: ANN401
        counts = [1 + len(json.loads(body)["topics"]) if body else 1 for body in bodies]
        asked.append(sorted(counts))
        remark = "the topics have 65537 queues, allowed are 65536: ask for fewer topics at once"
        refused = BrokerError(remark, code=ResponseCode.INVALID_PARAMETER, remark=remark)
        answers = send(code, requests, fields, bodies)
        return [refused if n > 2 else answer for n, answer in zip(counts, answers, strict=True)]

    monkeypatch.setattr(site.remote, "_request", request)
    assert len(site.remote.snapshot(names).bounds) == 6
    assert [counts for counts in asked if counts] == [[3, 3], [1, 1, 2, 2]]
    asked.clear()
    assert len(site.remote.snapshot(names).bounds) == 6
    assert [counts for counts in asked if counts] == [[1, 1, 2, 2]]


def test_requests_refused_as_too_many_are_repeated_few_at_a_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker of ours lets 20 of a connection wait; here all beyond those are refused."""
    asked: list[int] = []
    send = site.remote._request
    busy = BrokerBusy("busy", code=ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]")

    def request(code: RequestCode, requests: list[Any], fields: list[Any], bodies: Any = ()) -> Any:  # noqa: ANN401
        asked.append(len(requests))
        seen: Counter[str] = Counter()
        answers = send(code, requests, fields, bodies)
        for at, each in enumerate(requests):
            seen[each.address] += 1
            if seen[each.address] > 20:
                answers[at] = busy
        return answers

    monkeypatch.setattr(site.remote, "_request", request)
    requests = [
        _TopicRequest(f"Unknown{number}", broker.name, broker.address, range(1))
        for number in range(100)
        for broker in site.running.brokers
    ]
    answers = site.remote._request_statistics(requests, [b""] * len(requests))
    assert {type(answer) for answer in answers} == {TopicNotFound}
    assert asked == [200, *[20] * 8]


def test_a_broker_that_falls_silent_after_it_refused_requests_gets_no_more(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has time for two requests at once, the second for none at first, then hangs."""
    asked: list[Counter[str]] = []
    ready, hung = (broker.address for broker in site.running.brokers)
    busy = BrokerBusy("busy", code=ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]")
    unknown, silence = TopicNotFound("unknown"), RequestTimeout("silent")

    def request(code: RequestCode, requests: list[Any], fields: list[Any], bodies: Any = ()) -> Any:  # noqa: ANN401
        asked.append(Counter(one.address for one in requests))
        seen: Counter[str] = Counter()
        seen.update({ready: -2})
        answers: list[Exception] = []
        for one in requests:
            seen[one.address] += 1
            if one.address == hung and len(asked) > 1:
                answers.append(silence)
            else:
                answers.append(busy if seen[one.address] > 0 else unknown)
        return answers

    monkeypatch.setattr(site.remote, "_request", request)
    requests = [
        _TopicRequest(f"Unknown{number}", broker.name, broker.address, range(1))
        for number in range(30)
        for broker in site.running.brokers
    ]
    answers = site.remote._request_statistics(requests, [b""] * len(requests))
    assert {type(answer) for answer in answers[::2]} == {TopicNotFound}
    assert set(answers[1::2]) == {silence}
    assert [counts[hung] for counts in asked] == [30, 10, *[0] * 13]


def test_every_broker_is_asked_whether_a_topic_is_compacted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our brokers refuse such topics, so the second one's answer is a real broker's."""
    body = b'{"topicName":"t","attributes":{"cleanup.policy":"COMPACTION"}}'
    answers = [[ConnectionLost("away"), Command(0, {}, body)]]
    asked = []

    def request(code: RequestCode, requests: list[Any], fields: list[Any]) -> list[Any]:
        asked.append((code, {one.address for one in requests}, len(fields)))
        return answers.pop() if requests else []

    monkeypatch.setattr(site.remote, "_request", request)
    assert site.remote.compacted([site.name]) == {site.name}
    both = {broker.address for broker in site.running.brokers}
    assert asked == [(RequestCode.GET_TOPIC_CONFIG, both, 2)]
    assert site.remote.compacted([site.name]) == {site.name}
    assert not asked[1][1], "what is known is not asked again"


def test_brokers_before_5_0_are_not_asked_whether_a_topic_is_compacted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no such topics; those before 4.9.1 would not answer, in each plan."""
    send, asked = site.remote._request, Counter[RequestCode]()

    def request(code: RequestCode, requests: list[Any], *more: Any) -> list[Any]:  # noqa: ANN401
        asked[code] += len(requests)
        answers = send(code, requests, *more)
        return [
            Command(one.code, {**one.fields}, one.body, version=335)
            for one in answers
            if isinstance(one, Command)
        ]

    monkeypatch.setattr(site.remote, "_request", request)
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == set(site.queues))
    assert site.remote.compacted([site.name]) == set()
    assert asked[RequestCode.GET_TOPIC_STATS_INFO]
    assert not asked[RequestCode.GET_TOPIC_CONFIG]


def test_unknown_and_unreadable_topics_are_errors_or_left_out(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TopicNotFound, match=r"topic Nowhere: does not exist on .*: create it"):
        site.remote.snapshot(["Nowhere"])
    with Admin(name_server=site.running.name_server) as admin:
        admin.create_topic(f"{site.name}W", queues=1, perm=2)
    deadline = time.monotonic() + 20
    while True:
        try:
            site.remote.snapshot([f"{site.name}W"])
        except BrokerError as error:
            if "permission lacks read" in str(error):
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    snapshot = site.remote.snapshot([f"{site.name}W", site.name], lenient=True)
    assert set(snapshot.bounds) == set(site.queues)
    assert f"topic {site.name}W is left out: its permission lacks read" in caplog.messages


def test_system_topics_are_listed_on_request_only(site: Site) -> None:
    assert site.name in site.remote.topics(system=False)
    hidden = set(site.remote.topics(system=True)) - set(site.remote.topics(system=False))
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-a"} <= hidden
    assert site.name not in hidden


def test_offsets_are_committed_to_the_group(site: Site) -> None:
    a, b = site.queues
    site.send(0, ["one", "two"])
    site.await_snapshot(lambda snapshot: snapshot.bounds == {a: Bounds(0, 2), b: Bounds(0, 0)})
    # Brokers answer 0 for a short queue without an offset, and nothing for a longer one.
    assert set(site.remote.committed([a, b]).values()) <= {0}
    assert site.remote.commit({a: 2, b: 0}) == []
    assert site.remote.committed([a, b]) == {a: 2, b: 0}
    with Admin(name_server=site.running.name_server) as admin:
        progress = admin.consumer_progress("pyrmq-spark", site.name)
    assert {queue.broker: offset.committed for queue, offset in progress.items()} == {
        "broker-a": 2,
        "broker-b": 0,
    }


def test_a_group_that_commits_has_a_retry_topic_by_which_tools_find_it(site: Site) -> None:
    a, b = site.queues
    site.await_snapshot(lambda snapshot: set(snapshot.bounds) == {a, b})
    group = f"{site.name}Group"
    given = {"nameServer": site.running.name_server, "topic": site.name, "group": group}
    with Admin(name_server=site.running.name_server) as admin:
        assert f"%RETRY%{group}" not in admin.topics()
        remote = RemoteCluster(Options.parse(given, batch=False))
        remote.snapshot([site.name])
        for offset in (0, 1):
            assert remote.commit({a: offset, b: 0}) == []
        remote.close()
        brokers = {broker.name for broker in admin.route(f"%RETRY%{group}").brokers}
        assert brokers == {"broker-a", "broker-b"}
        assert group in admin.consumer_groups()


def test_marks_are_the_messages_before_the_positions(site: Site) -> None:
    a, b = site.queues
    site.send(0, ["one", "two"])
    site.await_snapshot(lambda snapshot: snapshot.bounds == {a: Bounds(0, 2), b: Bounds(0, 0)})
    topic = Topic(site.name, site.running.name_server, site.running.brokers[0].address)
    records = topic.records(0, 2)
    topic.connections.close()
    for offset, record in enumerate(records, 1):
        mark = (record.physical_offset, record.store_timestamp)
        assert site.remote.marks({a: offset, b: 0}) == {a: mark}
    assert site.remote.marks({a: 9}) == {}


def test_times_are_exact(site: Site) -> None:
    topic = Topic(f"{site.name}Times", site.running.name_server, site.running.brokers[0].address)
    checks.times_are_exact(topic.create())
    topic.connections.close()
