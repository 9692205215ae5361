"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
DEFAULT_NAME_SERVER = "127.0.0.1:9876"


class _Help(argparse.HelpFormatter):
    """As wide as the terminal, measured once: argparse measures it for every option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    try:
        return int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (OSError, ValueError):
        return 80


class _Parser(argparse.ArgumentParser):
    """Names the nearest option instead of a usage of a hundred lines."""

    _words: Sequence[str] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Keep the words, which say whose options are meant."""
        self._words = sys.argv[1:] if args is None else args
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the mistake, and end with status 2."""
        wrong = message.removeprefix("unrecognized arguments: ").split()
        if not message.startswith("unrecognized") or not wrong or not wrong[0].startswith("-"):
            super().error(message)
        from difflib import get_close_matches

        near = get_close_matches(wrong[0].split("=")[0], _options(self, self._words), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        self.exit(2, f"{self.prog}: error: {message}; {hint}{self.prog} --help lists the options\n")


def _options(of: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the options of a parser and of those of its verbs that are among the words."""
    found = list(of._option_string_actions)
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                found += _options(verb, words) if name in words else []
    return found


def parser(command: str, text: str) -> argparse.ArgumentParser:
    """A parser for `pyrmq COMMAND`; abbreviated options are refused."""
    return _Parser(
        prog=f"pyrmq {command}", description=text, allow_abbrev=False, formatter_class=_Help
    )


def add_name_server(to: argparse.ArgumentParser) -> None:
    """Add `-n` and `--json`."""
    to.add_argument(
        "-n",
        "--name-server",
        metavar="ADDRESS",
        default=os.environ.get(NAME_SERVER_VARIABLE) or DEFAULT_NAME_SERVER,
        help="name servers, host:port;host:port "
        f"(default: {NAME_SERVER_VARIABLE}, else {DEFAULT_NAME_SERVER})",
    )
    to.add_argument("--json", action="store_true", help="one JSON object per line")
    add_security(to)


def add_watch(to: argparse.ArgumentParser) -> None:
    """Add `--watch` and `--interval`, of commands that show rates."""
    to.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    to.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between the two samples for the rates (default: 1)",
    )


class _ToEnvironment(argparse.Action):
    """Sets an environment variable: every client of the command reads it, wherever it is made."""

    def __init__(self, *, variable: str, **given: Any) -> None:  # noqa: ANN401 - argparse's own
        super().__init__(**given)
        self.variable = variable

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - argparse's own
        option_string: str | None = None,
    ) -> None:
        """Set it; an option without a value sets `const`."""
        os.environ[self.variable] = str(self.const if self.nargs == 0 else values)


def add_security(to: argparse.ArgumentParser) -> None:
    """Add `--credentials`, `--tls` and the other security options."""
    variables: tuple[tuple[str, str, str, str | None, str], ...] = (
        ("--credentials", "PYRMQ_CREDENTIALS", "FILE", None, "credentials file, JSON or TOML"),
        ("--tls", "PYRMQ_TLS", "", "true", "connect over TLS"),
        ("--tls-ca", "PYRMQ_TLS_CA", "FILE", None, "trusted authorities; implies --tls"),
        ("--tls-cert", "PYRMQ_TLS_CERT", "FILE", None, "certificate of this client"),
        ("--tls-key", "PYRMQ_TLS_KEY", "FILE", None, "its private key"),
        ("--tls-server-name", "PYRMQ_TLS_SERVER_NAME", "NAME", None, "name in the certificates"),
        ("--tls-insecure", "PYRMQ_TLS_VERIFY", "", "false", "do not verify certificates"),
    )
    group = to.add_argument_group("security")
    for flag, variable, metavar, const, text in variables:
        how = {"metavar": metavar} if const is None else {"nargs": 0, "const": const}
        group.add_argument(
            flag,
            action=_ToEnvironment,
            variable=variable,
            help=f"{text} (default: {variable})",
            default=argparse.SUPPRESS,
            **how,
        )


def seconds(text: str) -> float:
    """Read a duration in seconds, up to an hour.

    Raises:
        ValueError: The text is not a positive number, or is above an hour.

    Example:
        >>> seconds("1.5")
        1.5
    """
    value = float(text)
    if not 0 < value <= 3600:
        raise ValueError(text)
    return value


def natural(text: str) -> int:
    """Read a number of 0 or more.

    Raises:
        ValueError: It is none.

    Example:
        >>> natural("0")
        0
    """
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def positive(text: str) -> int:
    """Read a number of 1 or more.

    Raises:
        ValueError: It is none.

    Example:
        >>> positive("3")
        3
    """
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value
