"""What an option is, and what the options of every role can do.

Each field carries its default, unit, bounds and Apache's name for it. Values are checked when the
object is made and never repaired: a wrong one is a `ConfigError` with key, value and range. The
order of the fields is the order of `pyrmq broker -p`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from dataclasses import Field

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PORT_MAX = 65_535


def option(
    default: object,
    text: str,
    *,
    apache: str | None = None,
    unit: str = "",
    minimum: int = 0,
    maximum: int = INT_MAX,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> Any:  # noqa: ANN401 - a data class field stands for a value of the annotated type
    """Declare one option of a role.

    Args:
        default: its default; the type of the default is the type of the option, `None` is a text
            found at start.
        text: what it does, as one clause.
        apache: Apache's name where it is not the field's name in camel case.
        unit: unit of a number.
        minimum: the smallest number taken.
        maximum: the largest number taken.
        choices: the texts taken; none means any.
        live: whether a running server takes a new value (request codes 25 and 318).

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Mine(Options):
        ...     idle_ms: int = option(500, "how long it sleeps", unit="ms", minimum=1)
        >>> Mine(idle_ms=0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: `idle_ms` is 0: it must be a whole number of ms...
    """
    metadata = {
        "text": text,
        "apache": apache,
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "live": live,
        "kind": str if default is None else type(default),
    }
    return field(default=default, metadata=metadata)


def apache_name(item: Field[Any]) -> str:
    """Apache's name of a field.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> [apache_name(item) for item in fields(NameServerOptions)][:2]
        ['listenPort', 'bindAddress']
    """
    given: str | None = item.metadata["apache"]
    if given is not None:
        return given
    first, *rest = item.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the options of all roles can do.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> from pyrmq.config import NameServerOptions
        >>> NameServerOptions.from_properties({"listenPort": "0"}).listen_port
        0
    """

    role: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every value."""
        for item in fields(self):
            object.__setattr__(self, item.name, _checked(item, getattr(self, item.name), item.name))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Options out of Apache's property names; keys that no option has are left aside.

        Args:
            properties: texts by Apache's property name. An empty text leaves what is found at start
            to be found.

        Raises:
            ConfigError: a value is of the wrong type or out of its range.

        Example:
            >>> from pyrmq.config import BrokerOptions
            >>> BrokerOptions.from_properties({"flushDiskType": "SYNC_FLUSH"}).flush_disk_type
            'SYNC_FLUSH'
        """
        known = {apache_name(item): item for item in fields(cls)}
        values = {}
        for key, text in properties.items():
            item = known.get(key)
            if item is not None and not (text.strip() == "" and item.default is None):
                values[item.name] = _parsed(item, text, key)
        return cls(**values)

    def to_properties(self) -> dict[str, str]:
        """Every option as text under Apache's name; what is found at start and not set is left out.

        Example:
            >>> from pyrmq.config import NameServerOptions
            >>> NameServerOptions().to_properties()["listenPort"]
            '9876'
        """
        pairs = ((apache_name(item), getattr(self, item.name)) for item in fields(self))
        return {key: as_text(value) for key, value in pairs if value is not None}

    def with_values(self, **values: object) -> Self:
        """A copy with some options changed.

        Raises:
            ConfigError: a name is no option of this role, or a value is wrong.

        Example:
            >>> from pyrmq.config import NameServerOptions
            >>> NameServerOptions().with_values(listen_port=0).listen_port
            0
        """
        check_names(type(self), values)
        return replace(self, **values)


def check_names(role: type[Options], names: Iterable[str]) -> None:
    """Refuse names that are no option of this role, with the nearest one that is.

    Raises:
        ConfigError: for the first such name.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> check_names(NameServerOptions, ["listen_prot"])
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: `listen_prot` is no option of the name server: did you mean
        `listen_port`?
    """
    known = [item.name for item in fields(role)]
    for name in names:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f": did you mean `{near[0]}`?" if near else ""
            raise ConfigError(f"`{name}` is no option of the {role.role}{hint}")


def as_text(value: object) -> str:
    """A value as a property file has it.

    Example:
        >>> as_text(True)
        'true'
    """
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _parsed(item: Field[Any], text: str, key: str) -> bool | int | str:
    kind = item.metadata["kind"]
    text = text.strip()
    if kind is bool:
        value = {"true": True, "false": False}.get(text.lower())
        if value is None:
            raise _wrong(item, text, key)
        return value
    if kind is int:
        if not text.removeprefix("-").isdecimal():
            raise _wrong(item, text, key)
        checked: int = _checked(item, int(text), key)
        return checked
    return text


def _checked(item: Field[Any], value: Any, key: str) -> Any:  # noqa: ANN401 - any value may be given; what comes out is checked
    kind, metadata = item.metadata["kind"], item.metadata
    if value is None and item.default is None:
        return None
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is int:
        right = right and metadata["minimum"] <= value <= metadata["maximum"]
    elif metadata["choices"]:
        right = right and value in metadata["choices"]
    if not right:
        raise _wrong(item, value, key)
    return value


def _wrong(item: Field[Any], value: object, key: str) -> ConfigError:
    metadata = item.metadata
    if metadata["kind"] is bool:
        wanted = "true or false"
    elif metadata["kind"] is int:
        of = f" of {metadata['unit']}" if metadata["unit"] else ""
        wanted = f"a whole number{of} from {metadata['minimum']} to {metadata['maximum']}"
    elif metadata["choices"]:
        wanted = "one of " + ", ".join(metadata["choices"])
    else:
        wanted = "a text"
    return ConfigError(f"`{key}` is {value!r}: it must be {wanted}")
