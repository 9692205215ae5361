"""The log of requests: which were slow, and which a row refused."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import Connection, ask, await_true

from pyrmq import NameServer
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.server.processors import Response
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import _core
    from pyrmq.testing import Cluster

REQUESTS = "pyrmq.requests"
SLOW_S = 1.1
OURS = 29_999
"""A request code that no server knows."""


@pytest.fixture
def running(caplog: pytest.LogCaptureFixture) -> Iterator[Cluster]:
    # The lowest level of the process's log is that of the loggers when its first server starts.
    with (
        caplog.at_level(logging.INFO, "pyrmq"),
        cluster(faults=True, auto_create_topic_enable=False) as made,
    ):
        yield made


def lines(caplog: pytest.LogCaptureFixture, *parts: str) -> list[str]:
    """The lines that have all these parts."""
    found = [one.getMessage() for one in caplog.records if one.name == REQUESTS]
    return [line for line in found if all(part in line for part in parts)]


def line_with(caplog: pytest.LogCaptureFixture, *parts: str) -> str:
    """Wait for the one line that has all these parts."""
    await_true(lambda: bool(lines(caplog, *parts)))
    (line,) = lines(caplog, *parts)
    return line


def send(topic: str) -> dict[str, str]:
    """The header of a send."""
    return {
        "a": "cooks",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    }


def create(address: str, topic: str) -> _core.Command:
    """Ask for a topic."""
    fields = {
        "topic": topic,
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "defaultTopic": "TBW102",
        "topicSysFlag": "0",
        "order": "false",
    }
    return ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


TIMES = r"waited_ms=\d+ served_ms=\d{4,} not_logged=0"


def test_a_slow_change_has_a_line_with_its_times(
    running: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    address = running.broker.address
    assert create(address, "quick").code == 0
    assert ask(address, RequestCode.SEND_MESSAGE_V2, send("quick"), b"x").code == 0
    assert not lines(caplog, "slow")
    # Each write and each fsync; a change has three.
    with running.brokers[0].disk.slow(SLOW_S / 2):
        assert create(address, "slow").code == 0
    line = line_with(caplog, "UPDATE_AND_CREATE_TOPIC")
    assert re.fullmatch(
        r"slow from=127\.0\.0\.1:\d+ code=17 request=UPDATE_AND_CREATE_TOPIC "
        rf'topic="slow" group="" {TIMES}',
        line,
    )


def pull(topic: str, group: str) -> dict[str, str]:
    """The header of a pull that does not wait for messages."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


def test_a_pull_that_waits_for_its_new_group_has_a_line(
    running: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    address = running.broker.address
    assert create(address, "orders").code == 0
    with running.brokers[0].disk.slow(SLOW_S / 2):
        code = ask(address, RequestCode.PULL_MESSAGE, pull("orders", "kitchen")).code
    assert code == ResponseCode.PULL_NOT_FOUND
    line = line_with(caplog, "slow", "PULL_MESSAGE")
    assert re.search(r'topic="orders" group="kitchen" waited_ms=\d{4,} served_ms=\d+ ', line)


@pytest.mark.nightly
def test_slow_sends_have_lines_with_their_times(
    running: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    address, disk = running.broker.address, running.brokers[0].disk
    assert create(address, "quick").code == 0
    assert ask(address, RequestCode.SEND_MESSAGE_V2, send("quick"), b"x").code == 0
    with disk.slow(SLOW_S):
        assert ask(address, RequestCode.SEND_MESSAGE_V2, send("quick"), b"x").code == 0
    assert 'group="cooks"' in line_with(caplog, "SEND_MESSAGE_V2")
    running.broker.reconfigure({"flush_disk_type": "SYNC_FLUSH"})
    with disk.slow(SLOW_S / 2):
        assert ask(address, RequestCode.SEND_MESSAGE_V2, send("quick"), b"x").code == 0
    # One for what was written together, one for the send that waited for the disk.
    await_true(lambda: len(lines(caplog, "SEND_MESSAGE_V2")) >= 3)
    for line in lines(caplog, "SEND_MESSAGE_V2"):
        form = r"slow from=127\.0\.0\.1:\d+ code=310 request=SEND_MESSAGE_V2 "
        assert re.fullmatch(rf'{form}topic="quick" group="(cooks)?" {TIMES}', line), line


def test_refused_requests_have_a_line_with_their_cause(
    running: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    address = running.broker.address
    assert create(address, "orders").code == 0
    missing = ask(address, RequestCode.SEND_MESSAGE_V2, send("missing"), b"x")
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    line = line_with(caplog, "SEND_MESSAGE_V2")
    assert line.startswith("refused from=127.0.0.1:")
    assert 'code=310 request=SEND_MESSAGE_V2 topic="missing" group="cooks" ' in line
    assert 'result=TOPIC_NOT_EXIST reason="topic[missing] not exist' in line
    assert ask(address, RequestCode.SEND_MESSAGE_V2, send("x\nslow from=y"), b"x").code != 0
    assert r'topic="x\nslow from=y"' in line_with(caplog, "INVALID_PARAMETER")
    refused = ask(address, RequestCode.PULL_MESSAGE, pull("none", "kitchen"))
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert 'topic="none" group="kitchen" result=' in line_with(caplog, "PULL_MESSAGE")
    assert ask(address, OURS).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "result=REQUEST_CODE_NOT_SUPPORTED" in line_with(caplog, f"code={OURS}")
    # A group without an offset is no fault of anybody.
    offset = {"consumerGroup": "new", "topic": "orders", "queueId": "0"}
    ask(address, RequestCode.QUERY_CONSUMER_OFFSET, offset | {"setZeroIfNotFound": "false"})
    levels = {one.levelno for one in caplog.records if one.name == REQUESTS}
    assert levels == {logging.INFO}
    with running.brokers[0].disk.full():
        failed = ask(address, RequestCode.SEND_MESSAGE_V2, send("orders"), b"x")
        assert failed.code != 0
        line_with(caplog, 'topic="orders"', "SEND_MESSAGE_V2")
    levels = {one.levelno for one in caplog.records if one.name == REQUESTS}
    assert levels == {logging.INFO, logging.WARNING}
    assert not lines(caplog, 'group="new"')


@pytest.mark.parametrize(
    ("code", "fields", "names"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"}, 'topic="none" group=""'),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {}, 'topic="" group=""'),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"}, 'topic="" group="g"'),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, 'topic="" group=""'),
    ],
)
def test_refusals_of_searches_changes_calls_and_python_have_a_line(
    running: Cluster,
    caplog: pytest.LogCaptureFixture,
    code: RequestCode,
    fields: dict[str, str],
    names: str,
) -> None:
    body = b"listenPort=1234" if code is RequestCode.UPDATE_BROKER_CONFIG else None
    answer = ask(running.broker.address, code, fields, body)
    result = ResponseCode(answer.code).name
    assert f" request={code.name} {names} result={result} " in line_with(caplog, "refused")


def test_one_client_has_few_lines_and_the_next_tells_of_the_rest(
    running: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with Connection(running.broker.address) as stranger:
        for _ in range(100):
            answer = stranger.ask(RequestCode.SEND_MESSAGE_V2, send("none"), b"x")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    await_true(lambda: bool(lines(caplog, "refused")))
    assert 1 <= len(lines(caplog, "refused")) <= 5


def test_what_python_serves_is_timed_too(caplog: pytest.LogCaptureFixture) -> None:
    served = NameServer(listen_port=0, bind_address="127.0.0.1")

    @served.processors.register(OURS)
    def sleepy(request: _core.Request) -> Response:
        del request
        time.sleep(SLOW_S)
        return Response()

    with caplog.at_level(logging.INFO, "pyrmq"), served:
        assert ask(served.address, OURS, {"topic": "beds"}).code == 0
        line = line_with(caplog, f"code={OURS}")
    assert re.search(r'topic="beds" group="" waited_ms=\d+ served_ms=1\d{3} ', line)
