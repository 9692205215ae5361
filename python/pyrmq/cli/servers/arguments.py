"""The arguments of `pyrmq nameserver | broker | server`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyrmq.cli.arguments import NAME_SERVER_VARIABLE, parser, positive
from pyrmq.config import NAME_SERVER_PORT, BrokerOptions, NameServerOptions, Options
from pyrmq.config.option import as_text

if TYPE_CHECKING:
    import argparse

_TEXTS = {
    "nameserver": "Run a name server until Ctrl-C or SIGTERM. `pyrmq nameserver status` shows the "
    "state of running ones.",
    "broker": "Run a broker until Ctrl-C or SIGTERM. `pyrmq broker status` shows the state of "
    "running ones.",
    "server": "Run a name server and a broker in one process until Ctrl-C or SIGTERM.",
}


def parser_of(verb: str) -> argparse.ArgumentParser:
    """Return the parser of `nameserver`, `broker` or `server`."""
    made = parser(verb, _TEXTS[verb])
    _add_shared(made)
    if verb == "nameserver":
        _add_options(made, NameServerOptions, leave_out=())
    elif verb == "broker":
        made.add_argument(
            "-n",
            dest="namesrv_addr",
            metavar="ADDRESS",
            default=os.environ.get(NAME_SERVER_VARIABLE),
            help=f"name servers, host:port;host:port (default: {NAME_SERVER_VARIABLE})",
        )
        _add_options(made, BrokerOptions, leave_out=("namesrv_addr", "log_level"))
    else:
        _add_both(made)
    return made


def _add_shared(made: argparse.ArgumentParser) -> None:
    made.add_argument("-c", "--config", metavar="FILE", help="property file in Apache's format")
    made.add_argument(
        "-p",
        "--print-config",
        action="store_true",
        help="print the options in force as properties, and exit",
    )
    made.add_argument(
        "--secure",
        metavar="DIR",
        help="require TLS and check every request, using a directory of `pyrmq secure init`",
    )
    made.add_argument(
        "--json",
        action="store_true",
        help="print the addresses, or with -p the options, as one JSON object",
    )
    made.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="level of the log (default: warning)",
    )
    made.add_argument(
        "--log-file",
        metavar="FILE",
        help="file for the log instead of standard error; it rotates daily and by size",
    )
    made.add_argument(
        "--log-max-mib",
        type=positive,
        default=100,
        metavar="MIB",
        help="size at which the log file rotates (default: 100)",
    )
    made.add_argument(
        "--log-keep",
        type=positive,
        default=10,
        metavar="N",
        help="rotated log files to keep (default: 10)",
    )
    made.add_argument(
        "--log-json", action="store_true", help="write each log line as a JSON object"
    )


def _add_both(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--name-server-port",
        type=int,
        default=None,
        metavar="PORT",
        help=f"port of the name server (default: {NAME_SERVER_PORT})",
    )
    made.add_argument(
        "--name-server-config",
        metavar="FILE",
        help="property file of the name server; -c is the broker's",
    )
    _add_options(
        made, BrokerOptions, leave_out=("namesrv_addr", "bind_address"), only_named=_OF_BOTH
    )
    made.add_argument(
        "--bind-address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; to accept other machines use 0.0.0.0 and --broker-ip1 "
        "(default: 127.0.0.1)",
    )


# The broker's options that `pyrmq server` has as flags; all others are in its property file.
_OF_BOTH = ("listen_port", "broker_name", "broker_ip1", "store_path_root_dir", "flush_disk_type")


def _add_options(
    made: argparse.ArgumentParser,
    role: type[Options],
    *,
    leave_out: tuple[str, ...],
    only_named: tuple[str, ...] = (),
) -> None:
    for item in role.fields:
        if item.name in leave_out or (only_named and item.name not in only_named):
            continue
        default = "" if item.default is None else f" (default: {as_text(item.default)})"
        unit = f", {item.unit}" if item.unit else ""
        flags = ["--" + item.name.replace("_", "-")]
        if item.name == "store_path_root_dir":
            flags.append("--store")
        made.add_argument(
            *flags,
            metavar=item.kind.__name__.upper(),
            help=(item.text + unit + default).replace("%", "%%"),
        )
