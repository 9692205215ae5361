"""The group of a stream, announced to brokers of which one refuses or gives no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq._tables.brokers.groups import KnownGroup
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import ConnectionLost, NameServerUnreachable, PermissionDenied, TopicNotFound
from pyrmq.remoting import Command

if TYPE_CHECKING:
    import pytest

ADDRESSES = {"broker-a": "a:1", "broker-b": "b:1"}


class Brokers:
    """Connections and name servers in one: answers by address, and every request."""

    def __init__(self, answers: dict[str, Any], route: Exception) -> None:
        self.answers, self.failure = answers, route
        self.asked: list[tuple[str, int]] = []
        self.routes = 0

    def route(self, _: str) -> None:
        """Fail: the group has no retry topic, or the request fails."""
        self.routes += 1
        raise self.failure

    def request(self, address: str, command: Command, _: int) -> Command:
        """Give the answer of an address."""
        self.asked.append((address, command.code))
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        return Command(int(answer), remark="said the broker")

    def announce(self, times: int) -> None:
        """Announce the group, as `times` commits do."""
        connections: Any = self
        group = KnownGroup(connections, connections, "g")
        for _ in range(times):
            group.announce(ADDRESSES, ADDRESSES, 100)


JOINED = [("b:1", RequestCode.HEART_BEAT), ("b:1", RequestCode.UNREGISTER_CLIENT)]
NO_TOPIC = TopicNotFound("no route")


def test_a_broker_that_refuses_hides_the_group_on_no_other_and_is_asked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = {"a:1": ResponseCode.NO_PERMISSION, "b:1": ResponseCode.SUCCESS}
    brokers = Brokers(answers, NO_TOPIC)
    brokers.announce(3)
    assert brokers.asked == [("a:1", RequestCode.HEART_BEAT), *JOINED]
    assert brokers.routes == 1
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(told) == 1
    assert "no lag of broker broker-a: a:1 answered HEART_BEAT with NO_PERMISSION" in told[0]


def test_a_broker_that_gives_no_answer_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers({"a:1": ConnectionLost("gone"), "b:1": ResponseCode.SUCCESS}, NO_TOPIC)
    brokers.announce(2)
    beat = ("a:1", RequestCode.HEART_BEAT)
    assert brokers.asked == [beat, *JOINED, beat]
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


def test_a_refused_route_ends_the_attempts_and_one_without_an_answer_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = Brokers({}, PermissionDenied("not for you", code=16))
    refused.announce(3)
    assert (refused.routes, refused.asked) == (1, [])
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    silent = Brokers({}, NameServerUnreachable("no answer"))
    silent.announce(3)
    assert (silent.routes, silent.asked) == (3, [])
