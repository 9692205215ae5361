"""Invalid values: each error names its option, before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from pyrmq import (
    ConfigError,
    Message,
    MessageError,
    Producer,
    PullConsumer,
    PushConsumer,
    TopicNotFound,
    aio,
)

WRONG: dict[str, tuple[Any, ...]] = {
    "name_server": (5, b"127.0.0.1:9876", [None], ["127.0.0.1:9876", 5], "", "host", "host:0"),
    "send_timeout": (None, "3", -1, 0, float("nan")),
    "retries": (None, -1, 1.5, True, 2**40),
    "compress_over_bytes": (-1, "x", 2**70),
    "compress_level": (None, -1, 10, 1.5),
    "max_message_bytes": (None, 0, -1, 2**40),
    "default_queues": (0, -1, 2**31),
    "max_in_flight": (None, 0, -1, 1.5, 2**70),
    "max_in_flight_bytes": (None, 0, -1),
    "linger": (None, -1, 61, float("nan"), float("inf")),
    "batch_bytes": (None, 0, -1, 2**70),
    "batch_messages": (None, 0, 2**40),
    "detect_timeout": (None, -1, "x"),
    "hooks": ([5], [print]),
}


@pytest.mark.parametrize("form", [Producer, aio.Producer])
@pytest.mark.parametrize("option", list(WRONG))
def test_a_producers_option_that_cannot_be_is_named(form: Any, option: str) -> None:  # noqa: ANN401
    for value in WRONG[option]:
        with pytest.raises(ConfigError, match=f"option `{option}`"):
            form(**{"name_server": "127.0.0.1:9876", option: value})


@pytest.mark.parametrize("option", ["batch", "ahead_bytes"])
def test_a_consumers_option_that_cannot_be_is_named(option: str) -> None:
    for value in (None, 0, -1, 1.5, 2**40):
        wrong: Any = {option: value}
        with pytest.raises(ConfigError, match=f"option `{option}`"):
            PullConsumer(name_server="127.0.0.1:9876", group="g", **wrong)


@pytest.mark.parametrize("option", ["threads", "consume_batch", "max_span"])
def test_a_listeners_option_that_cannot_be_is_named(option: str) -> None:
    for value in (None, 0, -1, 1.5):
        wrong: Any = {option: value}
        with pytest.raises(ConfigError, match=f"option `{option}`"):
            PushConsumer(name_server="127.0.0.1:9876", group="g", **wrong)


def test_an_illegal_topic_raises_at_once_in_a_consumer(address: str) -> None:
    with PullConsumer(name_server=address, group="misuse") as consumer:
        for name, match in (("", "it is empty"), ("two words", "only the characters")):
            with pytest.raises(MessageError, match=match):
                consumer.subscribe(name)
        with pytest.raises(TopicNotFound) as caught:
            consumer.subscribe("not-there")
    # The broker does create topics at a first send: the text must not deny it.
    assert "`not-there` does not exist. Fix: `pyrmq topic create" in str(caught.value)


def test_for_ever_is_a_time(address: str, topic: str) -> None:
    ever = float("inf")
    with Producer(name_server=address, send_timeout=ever) as producer:
        assert producer.send(topic, b"x", timeout=ever).status.name == "SEND_OK"
        assert producer.send_async(topic, b"x", timeout=1e300).result(10).status.name == "SEND_OK"
        producer.produce(topic, b"x")
        assert producer.flush(ever)
        producer.close(ever)


def test_a_delay_level_that_cannot_be_does_not_mean_at_once(address: str, topic: str) -> None:
    told: list[object] = []
    with Producer(name_server=address) as producer:
        for level in (-1, -(2**31), 2**31, 2**40):
            with pytest.raises(MessageError, match="delay level"):
                producer.send(topic, b"x", delay_level=level)
            with pytest.raises(MessageError, match="delay level"):
                producer.produce(
                    topic, b"x", lambda *outcome: told.append(outcome), delay_level=level
                )
            with pytest.raises(MessageError, match="delay level"):
                producer.send_async(topic, b"x", delay_level=level)
            with pytest.raises(MessageError, match="delay level"):
                producer.send_batch(topic, [Message(topic, b"x", delay_level=level)])
        assert producer.flush()
        assert producer.stats().confirmed == 0
    assert told == []
