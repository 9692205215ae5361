"""SQL92 filters over the properties of messages, as Apache RocketMQ 5.5.0 reads them.

docs/filters.md has the grammar, the rules of NULL and the texts of errors.

Example:
    >>> spring = Filter("region = 'eu' AND price >= 10")
    >>> [spring.matches({"region": "eu", "price": price}) for price in ("9", "10", "cheap")]
    [False, True, False]
"""

from collections.abc import Mapping

from pyrmq import _core

__all__ = ["Filter"]


class Filter:
    """A SQL92 condition on the properties of a message, compiled once.

    Args:
        expression: The condition, such as ``price > 10 AND region IN ('eu', 'us')``; at most 64 KiB
            and 64 levels of parentheses.

    Raises:
        FilterError: The expression cannot be read; the error's text and ``position`` say where.

    Attributes:
        expression: The condition as it was given.
        names: The properties that it names, each once.

    Example:
        >>> Filter("TAGS = 'new' OR urgent IS NOT NULL").names
        ('TAGS', 'urgent')
        >>> Filter("price > 10 AMD region = 'eu'")
        Traceback (most recent call last):
        ...
        pyrmq.errors.FilterError: wrong filter at character 11: found `AMD`, expected ...
    """

    __slots__ = ("_core", "expression", "names")

    def __init__(self, expression: str) -> None:
        self._core = _core.Filter(expression)
        self.expression = expression
        self.names = tuple(self._core.names())

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Check whether a message with these properties passes.

        A message passes if the condition is true: neither false nor NULL. A message whose values
        cannot be compared (``price > 10`` with the price ``cheap``) does not pass.

        Args:
            properties: Name and text of each property, as in ``ReceivedMessage.properties``. A
                missing property is NULL.

        Raises:
            TypeError: A property that the condition names is not text.

        Example:
            >>> Filter("price > 10").matches({"price": "10.5"})
            False
            >>> Filter("price > 10.0").matches({"price": "10.5"})
            True
        """
        return self._core.matches([properties.get(name) for name in self.names])

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Evaluate the condition: True, False, or None for NULL.

        Args:
            properties: As for :meth:`matches`.

        Raises:
            FilterError: A value cannot be compared as the condition requires.
            TypeError: A property that the condition names is not text.

        Example:
            >>> Filter("price > 10").evaluate({}) is None
            True
            >>> Filter("price > 10").evaluate({"price": "10.5"})
            Traceback (most recent call last):
            ...
            pyrmq.errors.FilterError: the comparison at character 0 of the filter has no result: ...
        """
        return self._core.evaluate([properties.get(name) for name in self.names])

    def __repr__(self) -> str:
        return f"Filter({self.expression!r})"

    def __reduce__(self) -> tuple[type["Filter"], tuple[str]]:
        return Filter, (self.expression,)
