"""Whole numbers beyond 32 bits: each raises an error that names the argument and its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.ways import FORMS

from pyrmq import Message, QueueId
from pyrmq.errors import ConfigError, MessageError

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LARGE = (2**31, -(2**31) - 1, 2**70)


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return FORMS[request.param]


@pytest.mark.parametrize("number", TOO_LARGE)
def test_a_flag_or_queue_beyond_32_bits_is_a_config_error(
    address: str, topic: str, form: Callable[..., Any], number: int
) -> None:
    one = ("send", "produce", "send_async", "send_in_transaction")
    with form(name_server=address) as ways:
        for way in one:
            with pytest.raises(ConfigError, match=f"`flag` is {number}, .* to 2147483647"):
                ways[way](topic, b"x", flag=number)
        with pytest.raises(ConfigError, match=f"`flag` is {number}"):
            ways["send_batch"](topic, Message(topic, b"x", flag=number))
        for way in (*one, "send_batch", "send_oneway", "request"):
            for queue in (number, QueueId(topic, "broker-a", number)):
                with pytest.raises(ConfigError, match=f"`queue` is {number}, .* to 2147483647"):
                    ways[way](topic, b"x", queue=queue)


@pytest.mark.parametrize("number", [0, *TOO_LARGE])
def test_a_batch_size_that_is_no_size_is_a_config_error(
    address: str, topic: str, form: Callable[..., Any], number: int
) -> None:
    with form(name_server=address) as ways, pytest.raises(ConfigError, match="`batch_bytes`"):
        ways["send_batch"](topic, b"x", batch_bytes=number)


def test_a_delay_level_beyond_64_bits_is_refused_like_any_other(
    address: str, topic: str, form: Callable[..., Any]
) -> None:
    with form(name_server=address) as ways:
        for way in ("send", "produce", "send_async"):
            with pytest.raises(MessageError, match="delay level"):
                ways[way](topic, b"x", delay_level=2**70)
        with pytest.raises(MessageError, match="delay level"):
            ways["send_batch"](topic, Message(topic, b"x", delay_level=2**70))
