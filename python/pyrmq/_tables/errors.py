"""Errors of reads and writes of tables, each with what happened, where, and what to do.

They derive from `pyrmq.errors.RmqError`, so one ``except`` catches the whole package. On an
executor Spark turns them into text, so the message contains everything that a person needs.
"""

from __future__ import annotations

from pyrmq.errors import ConfigError, DataLossError, RmqError

__all__ = ["BrokerAway", "DataLossError", "FenceError", "OffsetError", "OptionError", "SchemaError"]


class OptionError(ConfigError):
    """An option is unknown, missing, contradictory or has a value it cannot have.

    Example:
        >>> raise OptionError("topic", "is missing: name the topic to read")
        Traceback (most recent call last):
        ...
        pyrmq._tables.errors.OptionError: option topic: is missing: name the topic to read
    """

    def __init__(self, option: str, problem: str) -> None:
        """Keep the option's name in addition to the text; only `problem` shows the value."""
        super().__init__(f"option {option}: {problem}")
        self.option = option


class SchemaError(ConfigError):
    """A user schema names a column that does not exist, or gives it a type it does not have.

    Example:
        >>> raise SchemaError("column bdy: unknown, did you mean body?")
        Traceback (most recent call last):
        ...
        pyrmq._tables.errors.SchemaError: column bdy: unknown, did you mean body?
    """


class BrokerAway(RmqError):
    """A broker whose messages a read needs is out of the route or does not answer.

    Nothing is lost: its positions stay in the checkpoint, and a restart continues there.

    Example:
        >>> raise BrokerAway("broker broker-b (10.0.0.2:10911): away for 600 s")
        Traceback (most recent call last):
        ...
        pyrmq._tables.errors.BrokerAway: broker broker-b (10.0.0.2:10911): away for 600 s
    """


class OffsetError(RmqError):
    """Offsets do not match the topic or each other, or have the wrong form.

    Example:
        >>> raise OffsetError("topic orders, broker broker-a, queue 9: does not exist")
        Traceback (most recent call last):
        ...
        pyrmq._tables.errors.OffsetError: topic orders, broker broker-a, queue 9: does not exist
    """


class FenceError(RmqError):
    """The files of an exactly-once sink do not match its topic or its checkpoint.

    Example:
        >>> raise FenceError("/data/pyrmq-sink belongs to a sink of topic orders")
        Traceback (most recent call last):
        ...
        pyrmq._tables.errors.FenceError: /data/pyrmq-sink belongs to a sink of topic orders
    """
