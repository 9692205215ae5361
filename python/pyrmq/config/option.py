"""Options, and what the options of every role have in common.

Each option carries its default, unit, bounds and Apache's name for it. Values are checked when the
object is made and never repaired: a wrong one is a `ConfigError` with key, value and range. The
order of the options is the order of `pyrmq broker -p`.

`Options` makes its subclasses frozen, keyword-only data classes, as type checkers know them. The
module `dataclasses` is not used: importing it takes a fifth of the time from the start of
`pyrmq server` to its first connection.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PORT_MAX = 65_535


class Option(NamedTuple):
    """One option of a role.

    Attributes:
        name: its name in Python.
        default: its default; `None` is a text that the server determines at start.
        text: what it does, as one clause.
        apache: Apache's name.
        unit: unit of a number.
        minimum: the smallest number allowed.
        maximum: the largest number allowed.
        choices: the texts allowed; none means any.
        live: whether it can change while the server runs (request codes 25 and 318).
        kind: type of the value.
    """

    name: str
    default: Any
    text: str
    apache: str
    unit: str
    minimum: int
    maximum: int
    choices: tuple[str, ...]
    live: bool
    kind: type[bool | int | str]


def option(
    *,
    default: object,
    text: str,
    apache: str = "",
    unit: str = "",
    minimum: int = 0,
    maximum: int = INT_MAX,
    choices: tuple[str, ...] = (),
    live: bool = False,
) -> Any:  # noqa: ANN401 - it stands for a value of the annotated type
    """Declare one option of a role; see `Option`.

    Args:
        default: its default; the type of the default is the type of the option.
        text: what it does, as one clause.
        apache: Apache's name where it is not the field's name in camel case.
        unit: unit of a number.
        minimum: the smallest number allowed.
        maximum: the largest number allowed.
        choices: the texts allowed; none means any.
        live: whether it can change while the server runs.

    Example:
        >>> class Mine(Options):
        ...     idle_ms: int = option(default=500, text="its sleep", unit="ms", minimum=1)
        >>> Mine(idle_ms=0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: `idle_ms` is 0: it must be a whole number of ms...
    """
    kind = str if default is None else type(default)
    return Option("", default, text, apache, unit, minimum, maximum, choices, live, kind)  # type: ignore[arg-type]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """The base of every role's options.

    Raises:
        ConfigError: an unknown option or a wrong value.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> NameServerOptions.from_properties({"listenPort": "0"}).listen_port
        0
    """

    role: ClassVar[str] = ""
    fields: ClassVar[tuple[Option, ...]] = ()
    """The options in their order, with all that is known about each."""

    def __init_subclass__(cls) -> None:
        # Its own options, then those of its bases.
        declared = (
            (name, value)
            for kind in cls.__mro__
            for name, value in vars(kind).items()
            if isinstance(value, Option)
        )
        cls.fields = tuple(
            value._replace(name=name, apache=value.apache or _camel(name))
            for name, value in declared
        )

    def __init__(self, **values: object) -> None:
        check_names(type(self), values)
        self.__dict__.update(
            {
                item.name: _checked(item, values.get(item.name, item.default), item.name)
                for item in self.fields
            }
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"options are frozen: use with_values({name}=...)")

    __delattr__: Any = __setattr__

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = (f"{item.name}={getattr(self, item.name)!r}" for item in self.fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Make options from texts by Apache's property names; unknown keys are ignored.

        Args:
            properties: texts by Apache's property name. An empty text leaves an option that is
                determined at start unset.

        Raises:
            ConfigError: a value is of the wrong type or out of its range.

        Example:
            >>> from pyrmq.config import BrokerOptions
            >>> BrokerOptions.from_properties({"flushDiskType": "SYNC_FLUSH"}).flush_disk_type
            'SYNC_FLUSH'
        """
        known = {item.apache: item for item in cls.fields}
        values: dict[str, object] = {}
        for key, text in properties.items():
            item = known.get(key)
            if item is not None and not (text.strip() == "" and item.default is None):
                values[item.name] = _parsed(item, text, key)
        return cls(**values)

    @classmethod
    def environment(cls, variables: Mapping[str, str]) -> dict[str, str]:
        """Read options from environment variables: texts by Apache's property name.

        Args:
            variables: the environment. `PYRMQ_NAMESERVER_LISTEN_PORT` is the name server's
                `listen_port`, `PYRMQ_BROKER_FLUSH_DISK_TYPE` the broker's `flush_disk_type`.

        Raises:
            ConfigError: a variable is not an option of this role, or its value is wrong.

        Example:
            >>> from pyrmq.config import NameServerOptions
            >>> NameServerOptions.environment({"PYRMQ_NAMESERVER_LISTEN_PORT": "0"})
            {'listenPort': '0'}
        """
        prefix = f"PYRMQ_{cls.role.replace(' ', '').upper()}_"
        known = {prefix + item.name.upper(): item for item in cls.fields}
        texts: dict[str, str] = {}
        for variable, text in variables.items():
            if not variable.startswith(prefix):
                continue
            if variable not in known:
                raise ConfigError(
                    f"`{variable}` is not an option of the {cls.role}{_near(variable, known)}"
                )
            item = known[variable]
            _checked(item, _parsed(item, text, variable), variable)
            texts[item.apache] = text
        return texts

    def to_properties(self) -> dict[str, str]:
        """Return every option as text by Apache's name, except unset ones without a fixed default.

        Example:
            >>> from pyrmq.config import NameServerOptions
            >>> NameServerOptions().to_properties()["listenPort"]
            '9876'
        """
        pairs = ((item.apache, getattr(self, item.name)) for item in self.fields)
        return {key: as_text(value) for key, value in pairs if value is not None}

    def with_values(self, **values: object) -> Self:
        """Return a copy with some options changed.

        Raises:
            ConfigError: a name is not an option of this role, or a value is wrong.

        Example:
            >>> from pyrmq.config import NameServerOptions
            >>> NameServerOptions().with_values(listen_port=0).listen_port
            0
        """
        return type(self)(**{**vars(self), **values})


def check_names(role: type[Options], names: Iterable[str]) -> None:
    """Refuse names that are not options of this role; the error suggests the nearest option.

    Raises:
        ConfigError: for the first such name.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> check_names(NameServerOptions, ["listen_prot"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: `listen_prot` is not an option of the name server: did you mean...
    """
    known = [item.name for item in role.fields]
    for name in names:
        if name not in known:
            raise ConfigError(f"`{name}` is not an option of the {role.role}{_near(name, known)}")


def _near(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f": did you mean `{near[0]}`?" if near else ""


def as_text(value: object) -> str:
    """Return a value as a property file contains it.

    Example:
        >>> as_text(True)
        'true'
    """
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def _parsed(item: Option, text: str, key: str) -> bool | int | str:
    kind = item.kind
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


def _checked(item: Option, value: Any, key: str) -> Any:  # noqa: ANN401 - any value may be given; what comes out is checked
    kind = item.kind
    if value is None and item.default is None:
        return None
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is int:
        right = right and item.minimum <= value <= item.maximum
    elif item.choices:
        right = right and value in item.choices
    if not right:
        raise _wrong(item, value, key)
    return value


def _wrong(item: Option, value: object, key: str) -> ConfigError:
    if item.kind is bool:
        wanted = "true or false"
    elif item.kind is int:
        of = f" of {item.unit}" if item.unit else ""
        wanted = f"a whole number{of} from {item.minimum} to {item.maximum}"
    elif item.choices:
        wanted = "one of " + ", ".join(item.choices)
    else:
        wanted = "a text"
    return ConfigError(f"`{key}` is {value!r}: it must be {wanted}")
