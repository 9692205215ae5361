"""The options of a server that the command line starts, and its property file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyrmq.config import Options
from pyrmq.server.lifecycle import Server

if TYPE_CHECKING:
    import argparse

AnyServer = Server[Any, Any]
OptionsT = TypeVar("OptionsT", bound=Options)


class ServerFile(NamedTuple):
    """A server's property file, if it has one, and the options that have precedence over it."""

    path: str | None
    overridden: frozenset[str]

    def give(self, server: AnyServer) -> AnyServer:
        """Have the server reload it at SIGHUP, and write option changes into it."""
        server.config_file, server.overridden = self.path, self.overridden
        return server


def options_of(
    role: type[OptionsT], given: argparse.Namespace, values: dict[str, object] | None = None
) -> OptionsT:
    """Return the options in force. Precedence: command line, environment, file, defaults.

    `values` are set by the command itself and have precedence over all of them.
    """
    from pyrmq.server.load import load

    options = role() if given.config is None else load(role, given.config)
    options = options.with_values(**_secure_values(given))
    stronger = _stronger(role, given)
    if stronger:
        options = role.from_properties({**options.to_properties(), **stronger})
    if given.secure is not None:
        from pyrmq.server.security.directory import check_secure

        check_secure(options)
    return options.with_values(**values) if values else options


def _secure_values(given: argparse.Namespace) -> dict[str, object]:
    """The options that `--secure` sets."""
    if given.secure is None:
        return {}
    from pyrmq.server.security.directory import secure_values

    return secure_values(given.secure)


def _stronger(role: type[Options], given: argparse.Namespace) -> dict[str, str]:
    """The options of the command line and the environment, by Apache's names."""
    known = {item.name: item for item in role.fields}
    flags = {
        known[name].apache: text
        for name, text in vars(given).items()
        if name in known and text is not None
    }
    return {**role.environment(os.environ), **flags}


def overridden(role: type[Options], given: argparse.Namespace) -> frozenset[str]:
    """Return the names of the options that the command line or the environment sets."""
    stronger = _stronger(role, given)
    names = (item.name for item in role.fields if item.apache in stronger)
    return frozenset((*names, *_secure_values(given)))
