"""`pyrmq nameserver | broker | server`: run servers in this process until SIGINT or SIGTERM."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyrmq._client import log
from pyrmq.cli.arguments import DEFAULT_NAME_SERVER, NAME_SERVER_VARIABLE
from pyrmq.config import NAME_SERVER_PORT, BrokerOptions, NameServerOptions, Options
from pyrmq.config.option import as_text
from pyrmq.server.foreground import serve
from pyrmq.server.lifecycle import DRAIN_SECONDS, Server

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

AnyServer = Server[Any, Any]
OptionsT = TypeVar("OptionsT", bound=Options)
# The message when the servers are ready, for programs and for people.
Ready = tuple[dict[str, object], str]

_TEXTS = {
    "nameserver": "Run a name server until Ctrl-C or SIGTERM. `pyrmq nameserver status` shows how "
    "a running one is.",
    "broker": "Run a broker until Ctrl-C or SIGTERM. `pyrmq broker status` shows how the running "
    "ones are.",
    "server": "Run a name server and a broker in one process until Ctrl-C or SIGTERM.",
}


def run(verb: str, words: list[str]) -> int:
    """Run the command `verb` with these arguments."""
    if verb == "nameserver" and words[:1] == ["status"]:
        from pyrmq.cli import status

        return status.run(words[1:])
    if verb == "broker" and words[:1] in (["status"], ["config"], ["drain"]):
        from importlib import import_module

        status_of: int = import_module(f"pyrmq.cli.broker_{words[0]}").run(words[1:])
        return status_of
    given = _parser(verb).parse_args(words)
    _log(given)
    return {"nameserver": _name_server, "broker": _broker, "server": _both}[verb](given)


def _log(given: argparse.Namespace) -> None:
    level = given.log_level or "warning"
    if given.log_file is None and not given.log_json:
        log.use_standard_error(level)
        return
    from pyrmq._client.log_output import Output

    log.use(
        level,
        Output(given.log_file, given.log_max_mib << 20, given.log_keep, as_json=given.log_json),
    )


def _name_server(given: argparse.Namespace) -> int:
    options = _options(NameServerOptions, given)
    if given.print_config:
        return _print(options)

    def ready(servers: list[AnyServer]) -> Ready:
        address = servers[0].address
        return {"name_server": address}, f"ready: name server {address}"

    file = _File(given.config, _overridden(NameServerOptions, given))
    return _serve(given, [lambda _: _new_name_server(options, file)], ready, files=[file])


class _File(NamedTuple):
    """A server's property file, if it has one, and the options that have precedence over it."""

    path: str | None
    overridden: frozenset[str]

    def give(self, server: AnyServer) -> AnyServer:
        """Make a server read it again at SIGHUP, and write changes of options into it."""
        server.config_file, server.overridden = self.path, self.overridden
        return server


def _reload(servers: list[AnyServer]) -> None:
    """Apply the changes of property files at SIGHUP, or log why that is impossible."""
    from pyrmq.errors import RmqError

    for server in servers:
        if server.config_file is None:
            continue
        logger = log.get(f"pyrmq.{server.kind.role.replace(' ', '')}")
        try:
            server.reload()
        except (RmqError, OSError) as error:
            logger.warning("%s stays as it is: %s", server.address, error)
        else:
            logger.warning("%s has read %s again", server.address, server.config_file)


def _broker(given: argparse.Namespace) -> int:
    options = _options(BrokerOptions, given)
    if given.print_config:
        return _print(options)
    names = options.namesrv_addr or "none: clients cannot find this broker"

    def ready(servers: list[AnyServer]) -> Ready:
        address = servers[0].address
        text = f"ready: broker {options.broker_name} at {address}, name servers: {names}"
        return {"broker": address, "name_server": options.namesrv_addr}, text

    file = _File(given.config, _overridden(BrokerOptions, given))
    return _serve(given, [lambda _: _new_broker(options, file)], ready, files=[file])


def _both(given: argparse.Namespace) -> int:
    names, names_file = _names_of_both(given)
    values: dict[str, object] = {"namesrv_addr": f"127.0.0.1:{names.listen_port}"}
    if given.bind_address.startswith("127."):
        values["broker_ip1"] = given.bind_address
    options = _options(BrokerOptions, given, values)
    if names.kv_config_path is None and options.store_path_root_dir is not None:
        # Each directory has its own file, as it has its own broker.
        path = os.path.join(options.store_path_root_dir, "namesrv", "kvConfig.json")  # noqa: PTH118
        names = names.with_values(kv_config_path=path)
    if given.print_config:
        print("# the name server")
        _print(names)
        print("# the broker")
        return _print(options)

    def broker(started: list[AnyServer]) -> AnyServer:
        return _new_broker(options.with_values(namesrv_addr=started[0].address), broker_file)

    def ready(servers: list[AnyServer]) -> Ready:
        from pyrmq.broker.server import Broker

        for server in servers:
            if isinstance(server, Broker):
                # A program that reads the line may ask for the broker at once.
                server.await_registration()
        name_server, broker = (server.address for server in servers)
        flag = "" if name_server == DEFAULT_NAME_SERVER else f" -n {name_server}"
        if given.secure is not None:
            flag += f" --credentials {os.path.join(given.secure, 'admin.toml')}"  # noqa: PTH118
        text = (
            f"ready: name server {name_server}, broker {broker}; "
            f'try: pyrmq send{flag} orders "two coffees"'
        )
        return {"name_server": name_server, "broker": broker}, text

    broker_file = _File(given.config, _overridden(BrokerOptions, given) | values.keys())
    makers = [lambda _: _new_name_server(names, names_file), broker]
    return _serve(given, makers, ready, files=[names_file, broker_file])


def _names_of_both(given: argparse.Namespace) -> tuple[NameServerOptions, _File]:
    """The name server's options: flags over the environment over its property file."""
    from argparse import Namespace

    port = given.name_server_port
    flags = Namespace(
        config=given.name_server_config,
        listen_port=None if port is None else str(port),
        # The broker's address: clients that reach one server must reach the other.
        bind_address=given.bind_address,
        secure=given.secure,
    )
    file = _File(flags.config, _overridden(NameServerOptions, flags))
    return _options(NameServerOptions, flags), file


def _new_name_server(options: NameServerOptions, file: _File) -> AnyServer:
    from pyrmq.nameserver.server import NameServer

    return file.give(NameServer(options))


def _new_broker(options: BrokerOptions, file: _File) -> AnyServer:
    from pyrmq.broker.server import Broker

    return file.give(Broker(options))


def _serve(
    given: argparse.Namespace,
    makers: list[Callable[[list[AnyServer]], AnyServer]],
    ready: Callable[[list[AnyServer]], Ready],
    *,
    files: list[_File],
) -> int:
    def say(servers: list[AnyServer]) -> None:
        keys, text = ready(servers)
        if given.json:
            import json

            text = json.dumps({**keys, "pid": os.getpid()})
        print(text, flush=True)

    has_file = any(file.path is not None for file in files)
    serve(makers, ready=say, drain=DRAIN_SECONDS, reload=_reload if has_file else None)
    return 0


def _options(
    role: type[OptionsT], given: argparse.Namespace, values: dict[str, object] | None = None
) -> OptionsT:
    """The options in force. Precedence: command line, environment, file, defaults."""
    from pyrmq.server.load import load

    options = role() if given.config is None else load(role, given.config)
    options = options.with_values(**_secure_values(given))
    stronger = _stronger(role, given)
    if stronger:
        options = role.from_properties({**options.to_properties(), **stronger})
    if given.secure is not None:
        from pyrmq.server.secure import check_secure

        check_secure(options)
    return options.with_values(**values) if values else options


def _secure_values(given: argparse.Namespace) -> dict[str, object]:
    """The options that `--secure` stands for."""
    if given.secure is None:
        return {}
    from pyrmq.server.secure import secure_values

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


def _overridden(role: type[Options], given: argparse.Namespace) -> frozenset[str]:
    """The names of those options."""
    stronger = _stronger(role, given)
    names = (item.name for item in role.fields if item.apache in stronger)
    return frozenset((*names, *_secure_values(given)))


def _print(options: Options) -> int:
    from pyrmq.server.properties import write

    print(write(options.to_properties()), end="")
    return 0


def _parser(verb: str) -> argparse.ArgumentParser:
    from pyrmq.cli.arguments import parser, positive

    made = parser(verb, _TEXTS[verb])
    made.add_argument("-c", "--config", metavar="FILE", help="property file, as Apache's")
    made.add_argument(
        "-p",
        "--print-config",
        action="store_true",
        help="print the options in force as properties, and end",
    )
    made.add_argument(
        "--secure",
        metavar="DIR",
        help="take only TLS and check every request, with the directory of `pyrmq secure init`",
    )
    made.add_argument("--json", action="store_true", help="print the addresses as one JSON object")
    made.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="level of the log (default: warning)",
    )
    made.add_argument(
        "--log-file",
        metavar="FILE",
        help="write the log there instead of standard error; it rotates daily and by size",
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
        help="rotated log files that stay (default: 10)",
    )
    made.add_argument("--log-json", action="store_true", help="one JSON object for each log line")
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
        made.add_argument(
            "--name-server-port",
            type=int,
            default=None,
            metavar="PORT",
            help=f"its port (default: {NAME_SERVER_PORT})",
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
            help="what both listen on; for other machines 0.0.0.0 and --broker-ip1 "
            "(default: 127.0.0.1)",
        )
    return made


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
