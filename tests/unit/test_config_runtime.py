"""Options changed by request (25, 318): accepted and refused changes, with reasons."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.server.options.runtime import changes
from pyrmq.server.processors import Refused


def asked(text: str, options: Options | None = None) -> dict[str, object]:
    request: Any = SimpleNamespace(code=318, body=text.encode("latin-1"))
    return changes(options or NameServerOptions(), request)


def test_live_options_are_changed() -> None:
    assert asked("enableTopicList=false\norderMessageEnable=true") == {
        "enable_topic_list": False,
        "order_message_enable": True,
    }


def test_the_same_value_is_no_change() -> None:
    assert asked("listenPort=9876") == {}
    assert asked("") == {}


def test_unknown_keys_are_left_aside() -> None:
    assert asked("foo=1\nclientWorkerThreads=4") == {}


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("kvConfigPath=/x", 16, "Can not update config in black list. It contains kvConfigPath"),
        ("listenPort=1", 1, "cannot be changed while the name server runs: listenPort=9876"),
        ("enableTopicList=maybe", 1, "`enableTopicList` is 'maybe': it must be true or false"),
        ("a=\\u1", 1, "four hexadecimal digits"),
    ],
)
def test_what_cannot_be_changed_is_refused(text: str, code: int, remark: str) -> None:
    with pytest.raises(Refused) as caught:
        asked(text)
    assert caught.value.code == code
    assert remark in str(caught.value)


def test_one_wrong_key_changes_nothing() -> None:
    with pytest.raises(Refused):
        asked("enableTopicList=false\nlistenPort=1")


def test_the_brokers_black_list_is_apaches() -> None:
    with pytest.raises(Refused, match=r"black list\. It contains rocketmqHome"):
        asked("rocketmqHome=/", BrokerOptions())
