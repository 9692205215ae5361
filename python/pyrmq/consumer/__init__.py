"""Consumers: one is asked for messages, the other calls a function for each."""

from pyrmq._client.consume_hooks import ConsumeHook, ConsumeOutcome, Consuming
from pyrmq.consumer.offsets import QueueOffsets
from pyrmq.consumer.outcome import ConsumeResult, DeadLetter, ReconsumeLater
from pyrmq.consumer.pull import PullConsumer
from pyrmq.consumer.push import PushConsumer

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
]
