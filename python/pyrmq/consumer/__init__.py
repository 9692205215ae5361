"""Consumers: one is asked for messages, the other calls a function for each."""

from pyrmq.consumer.outcome import ConsumeResult, DeadLetter, ReconsumeLater
from pyrmq.consumer.pull import PullConsumer
from pyrmq.consumer.push import PushConsumer

__all__ = ["ConsumeResult", "DeadLetter", "PullConsumer", "PushConsumer", "ReconsumeLater"]
