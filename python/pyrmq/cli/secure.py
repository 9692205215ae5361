"""`pyrmq secure init`: an authority, a certificate for the servers, and the first users."""

from __future__ import annotations

import os

from pyrmq.cli.arguments import parser, positive
from pyrmq.server.security.directory import DAYS, HOSTS, make_secure


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq secure` with these arguments."""
    made = parser("secure", "Make what a secure cluster needs.")
    verbs = made.add_subparsers(dest="what", metavar="COMMAND", required=True)
    init = verbs.add_parser(
        "init",
        help="make an authority, a certificate for the servers, and the first users",
        description="Make a directory with an authority, a certificate for the servers, and the "
        "users `admin` (may do everything), `app` (may send and consume) and `server`, with "
        "secrets that are made at random.",
    )
    init.add_argument(
        "directory", metavar="DIR", help="a directory that does not exist or is empty"
    )
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="a name or address by which clients reach the servers, besides "
        f"{', '.join(HOSTS)}; may be repeated",
    )
    init.add_argument(
        "--days",
        type=positive,
        default=DAYS,
        metavar="N",
        help=f"how long the certificates are valid (default: {DAYS})",
    )
    given = made.parse_args(words)
    files = make_secure(given.directory, given.host, days=given.days)
    directory = os.path.normpath(given.directory)
    print(f"made {', '.join(files)} in {directory}")
    print(f"servers: pyrmq server --secure {directory}")
    print(f"clients: PYRMQ_CREDENTIALS={directory}/app.toml, or --credentials of each command")
    return 0
