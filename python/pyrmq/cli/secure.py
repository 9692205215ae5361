"""`pyrmq secure`: files for a secure cluster, users with ready-made rights, users of a broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import add_security, parser, positive
from pyrmq.cli.output import print_json
from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError, ProtocolError
from pyrmq.server.security.directory import DAYS, HOSTS, make_secure
from pyrmq.server.security.roles import ROLES, add_user, checked, policies_of
from pyrmq.server.security.watched import read_private, write_private

if TYPE_CHECKING:
    import argparse

    from pyrmq.remoting import Client

_TIMEOUT = 10.0
_USER = ("username", "password", "userType", "userStatus")


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq secure` with these arguments."""
    given = _parser().parse_args(words)
    status: int = given.does(given)
    return status


def _init(given: argparse.Namespace) -> int:
    files = make_secure(given.directory, given.host, days=given.days)
    directory = os.path.normpath(given.directory)
    if given.json:
        print_json({"directory": directory, "files": files})
        return 0
    print(f"made {', '.join(files)} in {directory}")
    print(f"servers: pyrmq server --secure {directory}")
    print(f"clients: PYRMQ_CREDENTIALS={directory}/app.toml, or --credentials of each command")
    return 0


def _user(given: argparse.Namespace) -> int:
    entries = policies_of(given.role, given.topic, given.group)
    path = add_user(given.directory, given.name, entries)
    if given.json:
        print_json({"user": given.name, "file": path, "entries": entries})
        return 0
    for entry in entries:
        print(f"{given.name} has {', '.join(entry['actions'])} on {entry['resource']}")
    print(f"clients: PYRMQ_CREDENTIALS={path}, with ca.pem beside it")
    return 0


def _export(given: argparse.Namespace) -> int:
    from pyrmq.remoting import Client

    file = Path(given.file)
    if file.exists() and not given.overwrite:
        raise ConfigError(f"`{file}` exists: name another file, or use --overwrite")
    with Client() as client:
        users = _request_list(client, given.broker, RequestCode.AUTH_LIST_USER, {"filter": ""})
        filters = {"subjectFilter": "", "resourceFilter": ""}
        acls = _request_list(client, given.broker, RequestCode.AUTH_LIST_ACL, filters)
    passwords = _passwords(given.passwords)
    for user in users:
        user["password"] = user.get("password") or passwords.get(user["username"])
    hidden = [user["username"] for user in users if not user["password"]]
    if hidden:
        raise ConfigError(
            f"{given.broker} does not show the password of {', '.join(hidden)}: ask as a super "
            "user; Apache's brokers show none, so give them in the file of --passwords"
        )
    # The file does not contain this broker's other fields.
    users = [{key: user[key] for key in _USER if user.get(key)} for user in users]
    acls = [acl for acl in acls if acl.get("policies")]
    text = json.dumps({"users": users, "acls": acls}, indent=2) + "\n"
    write_private(str(file), checked(text.encode(), f"the users of {given.broker}"))
    if given.json:
        print_json({"file": str(file), "users": len(users), "acls": len(acls)})
        return 0
    print(f"{len(users)} users and the policies of {len(acls)} of them are in {file}")
    return 0


def _passwords(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    text, _ = read_private("passwords", path)
    try:
        found = json.loads(text)
    except ValueError:
        # The error itself would quote a part of the file.
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ConfigError(
            f'`{path}` is not a JSON object such as {{"alice": "her password"}}'
        ) from None
    return found


def _request_list(
    client: Client, broker: str, code: int, fields: dict[str, str]
) -> list[dict[str, Any]]:
    body = client.ask(broker, code, fields, timeout=_TIMEOUT).body
    found = (json.loads(body) if body else None) or []
    if not isinstance(found, list):
        raise ProtocolError(f"{broker} answered request {code} with something other than a list")
    return found


def _import(given: argparse.Namespace) -> int:
    from pyrmq._client.security.credentials import Credentials
    from pyrmq.remoting import Client

    text, _ = read_private("passwords", given.file)
    known: dict[str, Any] = json.loads(checked(text, given.file))
    acls = known.get("acls") or []
    requester = Credentials.from_environment()
    own = None if requester is None else requester.access_key
    # The requesting user comes last: after its own new password it could change nothing else.
    last = [user for user in known["users"] if user["username"] == own]
    with Client() as client:
        for user in known["users"]:
            if user not in last:
                _put_user(client, given.broker, user)
        for acl in acls:
            fields, body = {"subject": acl["subject"]}, json.dumps(acl).encode()
            client.ask(given.broker, RequestCode.AUTH_CREATE_ACL, fields, body, timeout=_TIMEOUT)
        for user in last:
            _put_user(client, given.broker, user)
    if given.json:
        print_json({"broker": given.broker, "users": len(known["users"]), "acls": len(acls)})
        return 0
    print(
        f"{given.broker} has the {len(known['users'])} users of {given.file}; others are unchanged"
    )
    return 0


def _put_user(client: Client, broker: str, user: dict[str, Any]) -> None:
    name = {"username": user["username"]}
    there = client.ask(broker, RequestCode.AUTH_GET_USER, name, timeout=_TIMEOUT).body
    is_known = bool(there) and there != b"null"
    code = RequestCode.AUTH_UPDATE_USER if is_known else RequestCode.AUTH_CREATE_USER
    body = json.dumps({key: user[key] for key in _USER if user.get(key)}).encode()
    client.ask(broker, code, name, body, timeout=_TIMEOUT)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "secure", "Create the files of a secure cluster; add, export and import its users."
    )
    verbs = made.add_subparsers(dest="what", metavar="COMMAND", required=True)
    init = verbs.add_parser(
        "init",
        help="create an authority, a server certificate, and the first users",
        description="Create a directory with an authority, a certificate for the servers, and the "
        "users `admin` (may do everything), `app` (may send and consume) and `server`, with "
        "random secrets.",
        allow_abbrev=False,
    )
    init.add_argument("directory", metavar="DIR", help="directory that does not exist or is empty")
    init.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address by which clients reach the servers, besides "
        f"{', '.join(HOSTS)}; repeatable",
    )
    init.add_argument(
        "--days",
        type=positive,
        default=DAYS,
        metavar="N",
        help=f"how long the certificates are valid (default: {DAYS})",
    )
    init.set_defaults(does=_init)
    _add_user_parser(verbs)
    _add_transfer_parsers(verbs)
    for each in verbs.choices.values():
        each.add_argument("--json", action="store_true", help="one JSON object per line")
    return made


def _add_user_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    user = verbs.add_parser(
        "user",
        help="add a user with ready-made rights, and write its credentials file",
        description="Add a user to the directory. A producer sends to topics; a consumer reads "
        "topics in groups; an operator creates, changes and deletes everything but super users; "
        "read-only can see everything. Running servers pick up the user within a second.",
        allow_abbrev=False,
    )
    user.add_argument(
        "directory", metavar="DIR", help="the directory that `pyrmq secure init` made"
    )
    user.add_argument("name", metavar="NAME", help="the user; its file is NAME.toml")
    user.add_argument("--role", choices=ROLES, required=True, help="what it may do")
    for flag, what in (("--topic", "topic"), ("--group", "group")):
        user.add_argument(
            flag,
            action="append",
            default=[],
            metavar=what.upper(),
            help=f"a {what}, or a prefix such as 'shop-*'; repeatable",
        )
    user.set_defaults(does=_user)


def _add_transfer_parsers(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = verbs.add_parser(
        "export",
        help="write the users and policies of a running broker, ours or Apache's, to a file",
        allow_abbrev=False,
    )
    export.add_argument("broker", metavar="BROKER", help="host:port")
    export.add_argument(
        "file", metavar="FILE", help="file in the format of authConfigPath, mode 0600"
    )
    export.add_argument(
        "--passwords",
        metavar="FILE",
        help="JSON object of passwords that the broker does not show, mode 0600",
    )
    export.add_argument("--overwrite", action="store_true", help="replace an existing file")
    export.set_defaults(does=_export)
    importing = verbs.add_parser(
        "import",
        help="create and change users and policies of a running broker, ours or Apache's",
        description="Give a broker the users and policies of a file. Its other users "
        "stay, and so do entries for other resources. previousPassword is not sent.",
        allow_abbrev=False,
    )
    importing.add_argument("file", metavar="FILE", help="file of users and policies, mode 0600")
    importing.add_argument("broker", metavar="BROKER", help="host:port")
    importing.set_defaults(does=_import)
    for each in (export, importing):
        add_security(each)
