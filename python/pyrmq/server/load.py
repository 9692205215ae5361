"""Read options from a property file, with a warning about keys that have no effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyrmq.server.options import properties
from pyrmq.server.options.unknown import warn_of_unknown
from pyrmq.server.security.keys import refuse_unsupported

if TYPE_CHECKING:
    import os

    from pyrmq.config.option import Options

    T = TypeVar("T", bound=Options)


def load(role: type[T], path: str | os.PathLike[str]) -> T:
    """Read the options of a role from a property file.

    One warning of the logger `pyrmq.config` names the keys without effect, each with the closest
    key that has one.

    Args:
        role: the data class of the options.
        path: the file, as `mqbroker -c` takes it.

    Raises:
        ConfigError: the file cannot be read, a value in it is wrong, or it enables protection that
            this server does not have.

    Example:
        >>> from pyrmq.config import BrokerOptions
        >>> load(BrokerOptions, "broker.conf")  # doctest: +SKIP
    """
    pairs = properties.read(path)
    refuse_unsupported(role.role, pairs)
    warn_of_unknown(role.role, pairs, [item.apache for item in role.fields], str(path))
    return role.from_properties(pairs)
