"""`pyrmq dashboard`: a page that shows a cluster, until Ctrl-C."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyrmq.cli.arguments import add_name_server, natural, parser, seconds

if TYPE_CHECKING:
    import argparse

_PORT = 8087


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq dashboard` with these arguments."""
    given = _parser(verb).parse_args(words)
    # After the arguments: `--help` needs none of it.
    from pyrmq.dashboard import check_extra

    check_extra()
    from pyrmq._client.values import name_servers
    from pyrmq.dashboard.serving import listen, permissions_for, serve, server_for

    names = ";".join(name_servers(given.name_server))
    permissions = permissions_for(given.host, given.allow_host, write=given.write)

    def ready(url: str) -> None:
        if given.json:
            print(json.dumps({"url": url, "token": permissions.token}), flush=True)
            return
        if permissions.token is None:
            print(f"ready: {url} (reads only; --write lets it change things)", flush=True)
            return
        # Browsers do not send what follows the `#`.
        print(f"ready: {url}#token={permissions.token}", flush=True)
        print(f"token: {permissions.token}", flush=True)

    with listen(given.host, given.port) as bound:
        serve(server_for(names, permissions, bound, timeout=given.timeout, ready=ready), bound)
    return 0


def _parser(verb: str) -> argparse.ArgumentParser:
    made = parser(verb, "Show a cluster on a page in the browser, until Ctrl-C.")
    add_name_server(made)
    made.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; on any address but loopback, reading needs the token too "
        "(default: 127.0.0.1)",
    )
    made.add_argument(
        "--port", type=natural, default=_PORT, metavar="N", help=f"port (default: {_PORT})"
    )
    made.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that browsers may use for this machine, besides localhost; repeatable",
    )
    made.add_argument(
        "--write",
        action="store_true",
        help="let the page change things for users who have the token printed at start",
    )
    made.add_argument(
        "--timeout",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="limit for each request to a server (default: 3)",
    )
    return made
