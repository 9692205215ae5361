"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os

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


def parser(command: str, text: str) -> argparse.ArgumentParser:
    """A parser for `pyrmq COMMAND`; abbreviated options are refused."""
    return argparse.ArgumentParser(
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
    to.add_argument("--json", action="store_true", help="one JSON object a line")


def seconds(text: str) -> float:
    """Read a duration in seconds, up to an hour.

    Raises:
        ValueError: It is not a number, not positive, or longer.

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
