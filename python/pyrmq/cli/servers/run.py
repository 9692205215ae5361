"""`pyrmq nameserver | broker | server`: run servers in this process until SIGINT or SIGTERM."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyrmq._client import log
from pyrmq.cli.arguments import DEFAULT_NAME_SERVER
from pyrmq.cli.servers.arguments import parser_of
from pyrmq.cli.servers.options import AnyServer, ServerFile, options_of, overridden
from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.server.foreground import serve
from pyrmq.server.lifecycle import DRAIN_SECONDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

# The message when the servers are ready, for programs and for people.
Ready = tuple[dict[str, object], str]


def run(verb: str, words: list[str]) -> int:
    """Run the command `verb` with these arguments."""
    if verb == "nameserver" and words[:1] == ["status"]:
        from pyrmq.cli.servers import status

        return status.run(words[1:])
    if verb == "broker" and words[:1] in (["status"], ["config"], ["drain"]):
        from importlib import import_module

        status_of: int = import_module(f"pyrmq.cli.broker.{words[0]}").run(words[1:])
        return status_of
    given = parser_of(verb).parse_args(words)
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
    options = options_of(NameServerOptions, given)
    if given.print_config:
        return _print(given, {"name_server": options})

    def ready(servers: list[AnyServer]) -> Ready:
        address = servers[0].address
        return {"name_server": address}, f"ready: name server {address}"

    file = ServerFile(given.config, overridden(NameServerOptions, given))
    return _serve(given, [lambda _: _new_name_server(options, file)], ready, files=[file])


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
    options = options_of(BrokerOptions, given)
    if given.print_config:
        return _print(given, {"broker": options})
    names = options.namesrv_addr or "none: clients cannot find this broker"

    def ready(servers: list[AnyServer]) -> Ready:
        address = servers[0].address
        text = f"ready: broker {options.broker_name} at {address}, name servers: {names}"
        return {"broker": address, "name_server": options.namesrv_addr}, text

    file = ServerFile(given.config, overridden(BrokerOptions, given))
    return _serve(given, [lambda _: _new_broker(options, file)], ready, files=[file])


def _both(given: argparse.Namespace) -> int:
    names, names_file = _names_of_both(given)
    values: dict[str, object] = {"namesrv_addr": f"127.0.0.1:{names.listen_port}"}
    if given.bind_address.startswith("127."):
        values["broker_ip1"] = given.bind_address
    options = options_of(BrokerOptions, given, values)
    if names.kv_config_path is None and options.store_path_root_dir is not None:
        # Each directory has its own file, as it has its own broker.
        path = os.path.join(options.store_path_root_dir, "namesrv", "kvConfig.json")  # noqa: PTH118
        names = names.with_values(kv_config_path=path)
    if given.print_config:
        return _print(given, {"name_server": names, "broker": options})

    def broker(started: list[AnyServer]) -> AnyServer:
        return _new_broker(options.with_values(namesrv_addr=started[0].address), broker_file)

    def ready(servers: list[AnyServer]) -> Ready:
        from pyrmq.broker.server import Broker

        for server in servers:
            if isinstance(server, Broker):
                # A program that reads the line may look the broker up at once.
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

    broker_file = ServerFile(given.config, overridden(BrokerOptions, given) | values.keys())
    makers = [lambda _: _new_name_server(names, names_file), broker]
    return _serve(given, makers, ready, files=[names_file, broker_file])


def _names_of_both(given: argparse.Namespace) -> tuple[NameServerOptions, ServerFile]:
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
    file = ServerFile(flags.config, overridden(NameServerOptions, flags))
    return options_of(NameServerOptions, flags), file


def _new_name_server(options: NameServerOptions, file: ServerFile) -> AnyServer:
    from pyrmq.nameserver.server import NameServer

    return file.give(NameServer(options))


def _new_broker(options: BrokerOptions, file: ServerFile) -> AnyServer:
    from pyrmq.broker.server import Broker

    return file.give(Broker(options))


def _serve(
    given: argparse.Namespace,
    makers: list[Callable[[list[AnyServer]], AnyServer]],
    ready: Callable[[list[AnyServer]], Ready],
    *,
    files: list[ServerFile],
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


def _print(given: argparse.Namespace, servers: dict[str, Options]) -> int:
    """Print the options of each server, as its property file would have them."""
    if given.json:
        from pyrmq.cli.output import print_json

        print_json({role: options.to_properties() for role, options in servers.items()})
        return 0
    from pyrmq.server.options.properties import write

    for role, options in servers.items():
        if len(servers) > 1:
            print(f"# the {role.replace('_', ' ')}")
        print(write(options.to_properties()), end="")
    return 0
