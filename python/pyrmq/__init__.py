"""Apache RocketMQ for Python: producer, consumer, name server and broker over one Rust core.

The distribution is called ``pyrmq-rocketmq``; ``pyrmq`` on the package index is a RabbitMQ library.
Names are loaded on first use, so importing this package starts nothing and costs little.

Example:
    >>> import pyrmq
    >>> pyrmq.Message("orders", b"two coffees").topic
    'orders'
"""

from importlib import import_module
from typing import TYPE_CHECKING

try:
    from pyrmq._core import __version__
except ImportError as _cause:
    from pyrmq_rocketmq import native_module_missing

    raise native_module_missing(__path__, _cause) from _cause

if TYPE_CHECKING:
    from pyrmq._client.security.credentials import Credentials as Credentials
    from pyrmq._client.security.tls import Tls as Tls
    from pyrmq.admin import Admin as Admin
    from pyrmq.broker.server import Broker as Broker
    from pyrmq.consumer.outcome import ConsumeResult as ConsumeResult
    from pyrmq.consumer.outcome import DeadLetter as DeadLetter
    from pyrmq.consumer.outcome import ReconsumeLater as ReconsumeLater
    from pyrmq.consumer.pull import PullConsumer as PullConsumer
    from pyrmq.consumer.push import PushConsumer as PushConsumer
    from pyrmq.consumer.simple import SimpleConsumer as SimpleConsumer
    from pyrmq.errors import BrokerError as BrokerError
    from pyrmq.errors import ClosedError as ClosedError
    from pyrmq.errors import ConfigError as ConfigError
    from pyrmq.errors import ConnectionLost as ConnectionLost
    from pyrmq.errors import ForkError as ForkError
    from pyrmq.errors import MessageError as MessageError
    from pyrmq.errors import NameServerUnreachable as NameServerUnreachable
    from pyrmq.errors import ProtocolError as ProtocolError
    from pyrmq.errors import ReceiptError as ReceiptError
    from pyrmq.errors import RmqError as RmqError
    from pyrmq.errors import RouteError as RouteError
    from pyrmq.errors import SendTimeout as SendTimeout
    from pyrmq.errors import TopicNotFound as TopicNotFound
    from pyrmq.message import Message as Message
    from pyrmq.message import MessageBatch as MessageBatch
    from pyrmq.message import PoppedMessage as PoppedMessage
    from pyrmq.message import QueueId as QueueId
    from pyrmq.message import Receipt as Receipt
    from pyrmq.message import ReceivedMessage as ReceivedMessage
    from pyrmq.message import SendResult as SendResult
    from pyrmq.message import SendStatus as SendStatus
    from pyrmq.nameserver.server import NameServer as NameServer
    from pyrmq.producer import Producer as Producer
    from pyrmq.transaction import TransactionProducer as TransactionProducer
    from pyrmq.transaction import TransactionState as TransactionState

_HOME = {
    "Admin": "pyrmq.admin",
    "Broker": "pyrmq.broker.server",
    "BrokerError": "pyrmq.errors",
    "ClosedError": "pyrmq.errors",
    "ConfigError": "pyrmq.errors",
    "ConnectionLost": "pyrmq.errors",
    "ConsumeResult": "pyrmq.consumer.outcome",
    "Credentials": "pyrmq._client.security.credentials",
    "DeadLetter": "pyrmq.consumer.outcome",
    "ForkError": "pyrmq.errors",
    "Message": "pyrmq.message",
    "MessageBatch": "pyrmq.message",
    "MessageError": "pyrmq.errors",
    "NameServer": "pyrmq.nameserver.server",
    "NameServerUnreachable": "pyrmq.errors",
    "PoppedMessage": "pyrmq.message",
    "Producer": "pyrmq.producer",
    "ProtocolError": "pyrmq.errors",
    "PullConsumer": "pyrmq.consumer.pull",
    "PushConsumer": "pyrmq.consumer.push",
    "QueueId": "pyrmq.message",
    "Receipt": "pyrmq.message",
    "ReceiptError": "pyrmq.errors",
    "ReceivedMessage": "pyrmq.message",
    "ReconsumeLater": "pyrmq.consumer.outcome",
    "RmqError": "pyrmq.errors",
    "RouteError": "pyrmq.errors",
    "SendResult": "pyrmq.message",
    "SendStatus": "pyrmq.message",
    "SendTimeout": "pyrmq.errors",
    "SimpleConsumer": "pyrmq.consumer.simple",
    "Tls": "pyrmq._client.security.tls",
    "TopicNotFound": "pyrmq.errors",
    "TransactionProducer": "pyrmq.transaction",
    "TransactionState": "pyrmq.transaction",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *_HOME})
