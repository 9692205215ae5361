"""Consumers: polled ones, ones with listeners, and ones that hide messages for a time."""

from pyrmq._client.hooks.consume import ConsumeHook, ConsumeOutcome, Consuming
from pyrmq.consumer.outcome import ConsumeResult, DeadLetter, ReconsumeLater
from pyrmq.consumer.polled import QueueOffsets
from pyrmq.consumer.pull import PullConsumer
from pyrmq.consumer.push import PushConsumer
from pyrmq.consumer.simple import SimpleConsumer

__all__ = [
    "ConsumeHook",
    "ConsumeOutcome",
    "ConsumeResult",
    "Consuming",
    "DeadLetter",
    "PullConsumer",
    "PushConsumer",
    "QueueOffsets",
    "ReconsumeLater",
    "SimpleConsumer",
]
