"""The option `request_fields`: what it accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import ConfigError, Producer, PullConsumer, PushConsumer, SimpleConsumer, aio
from pyrmq._client.options.consumer import ConsumerOptions
from pyrmq._client.options.producer import Options, ProducerOptions
from pyrmq._client.options.request_fields import _USED, added_fields
from pyrmq._client.options.simple import SimpleConsumerOptions

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = Path(__file__).resolve().parents[2] / "crates" / "remoting" / "src" / "header"
OTHERS = {
    *("AccessKey", "SecurityToken", "Signature", "_UNIQUE_KEY_QUERY"),
    # Fields of ours, which no header structure has.
    *("durability", "advertisedAddresses"),
    # Sends have letters; Apache's `RpcRequestHeader` and `TopicRequestHeader` have the others.
    *"abcdefghijklmn",
    *("batch", "lo", "ns", "nsd", "oway"),
}


def test_the_fields_of_each_header_are_in_use() -> None:
    texts = [path.read_text(encoding="utf-8") for path in HEADERS.glob("*.rs")]
    names = {name for text in texts for name in re.findall(r'=> "(\w+)"', text)}
    assert {"topic", "consumerGroup", "bname"} <= names
    assert names | OTHERS == _USED


CLIENTS: list[Callable[..., Any]] = [
    Producer,
    aio.Producer,
    PullConsumer,
    aio.PullConsumer,
    PushConsumer,
    aio.PushConsumer,
    SimpleConsumer,
    aio.SimpleConsumer,
]


@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_each_client_refuses_a_name_that_requests_use(client: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="`request_fields` has the name 'topic', which is that"):
        client(name_server="127.0.0.1:9", group="g", request_fields={"topic": "x"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([("tenant", "x")], "is of type list, it must be a mapping"),
        ({"": "x"}, "has the name '', it must be of printable"),
        ({"a b": "x"}, "has the name 'a b', it must be of printable"),
        ({"ü": "x"}, "has the name 'ü', it must be of printable"),
        ({7: "x"}, "has the name 7, it must be of printable"),
        ({"Signature": "x"}, "has the name 'Signature', which is that of a field"),
        ({"AccessKey": "x"}, "has the name 'AccessKey', which is that of a field"),
        ({"SecurityToken": "x"}, "has the name 'SecurityToken', which is that of a field"),
        ({"@type": "x"}, "has the name '@type': names that begin with `@` or `$`"),
        ({"$ref": "x"}, "has the name '$ref': names that begin with `@` or `$`"),
        ({f"f{n}": "" for n in range(65)}, "has 65 fields, it may have 64"),
        ({"tenant": 7}, "the value of 'tenant' in option `request_fields` is not a text"),
        ({"tenant": "x\x00"}, "is not a text of printable characters"),
        ({"tenant": "\ud800"}, "is not a text of printable characters"),
        ({"tenant": "x" * 4091}, "has 4097 bytes, it may have 4096"),
    ],
)
def test_what_cannot_be_sent_is_refused(given: object, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        added_fields(given)
    assert text in str(raised.value)


def test_fields_are_kept_in_their_order() -> None:
    assert added_fields(None) == []
    assert added_fields({"b2": "", "a1": "ü"}) == [("b2", ""), ("a1", "ü")]
    assert added_fields({"tenant": "x" * 4090})
    assert len(added_fields({f"f{n}": "" for n in range(64)})) == 64
    assert added_fields({"a@b": "", "a$": ""}) == [("a@b", ""), ("a$", "")]


@pytest.mark.parametrize("options", [ProducerOptions, ConsumerOptions, SimpleConsumerOptions])
def test_later_changes_of_the_mapping_change_no_request(options: type[Options]) -> None:
    given = {"tenant": "kitchen"}
    made: Any = options(name_server="127.0.0.1:9", request_fields=given)
    given["@type"] = "x"
    given["tenant"] = "hall"
    assert made.request_fields == {"tenant": "kitchen"}
    assert made.client()["request_fields"] == [("tenant", "kitchen")]
