"""Users with ready-made rights, added to a directory of `pyrmq secure init`."""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.errors import ConfigError
from pyrmq.server.security.directory import SECRET_BYTES, credentials_text
from pyrmq.server.security.users import report_contradictions
from pyrmq.server.security.watched import changing_alone, read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ROLES", "add_user", "checked", "policies_of"]

ROLES = ("producer", "consumer", "operator", "read-only")
_WARNING = 30  # of `logging`, which is imported when there is something to write
_OF_OPERATOR = ("Create", "Update", "Delete", "Get", "List")
_OF_READER = ("Get", "List")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_RESOURCE = re.compile(r"\*|[%|a-zA-Z0-9_-]+\*?", re.ASCII)


def policies_of(
    role: str, topics: Sequence[str] = (), groups: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the entries of a role's policy.

    Args:
        role: One of `ROLES`. A producer sends to topics; a consumer reads topics in groups; an
            operator creates, changes and deletes everything but super users; read-only reads
            everything and changes nothing.
        topics: Names, or prefixes followed by `*`; for producers and consumers.
        groups: Names or prefixes of groups; for consumers.

    Raises:
        ConfigError: A role lacks topics or groups, does not use them, or a name is invalid.

    Example:
        >>> policies_of("producer", ["orders"])[0]["resource"]
        'Topic:orders'
    """
    needs = {"producer": (True, False), "consumer": (True, True)}.get(role, (False, False))
    for what, given, needed in zip(("topic", "group"), (topics, groups), needs, strict=True):
        if needed and not given:
            raise ConfigError(f"role `{role}` needs `--{what}`: name one, or several")
        if given and not needed:
            raise ConfigError(f"role `{role}` does not use `--{what}`: remove it")
        wrong = [name for name in given if not _RESOURCE.fullmatch(name)]
        if wrong:
            raise ConfigError(
                f"{wrong[0]!r} is neither a name of a {what} nor a prefix followed by `*`"
            )
    if role == "producer":
        return [_entry(f"Topic:{topic}", "Pub", "Get") for topic in topics]
    if role == "consumer":
        resources = [*(f"Topic:{topic}" for topic in topics), *(f"Group:{one}" for one in groups)]
        return [_entry(resource, "Sub", "Get") for resource in resources]
    if role not in ROLES:
        raise ConfigError(f"there is no role {role!r}: choose one of {', '.join(ROLES)}")
    return [_entry("*", *(_OF_OPERATOR if role == "operator" else _OF_READER))]


def add_user(directory: str | os.PathLike[str], name: str, entries: list[dict[str, Any]]) -> str:
    """Add a user with a random secret, and write its credentials file.

    Servers that run with the directory pick up the user within a second.

    Args:
        directory: The directory that `pyrmq secure init` made.
        name: The user's name; its credentials are in `NAME.toml`.
        entries: What it may do, from `policies_of`.

    Returns:
        The path of the credentials file.

    Raises:
        ConfigError: The name is taken or invalid, or the file of users cannot be used.
        OSError: A file cannot be written, or another process has held it for 10 s; nothing has
            changed then.

    Example:
        >>> add_user("/etc/pyrmq", "shop", policies_of("producer", ["orders"]))  # doctest: +SKIP
        '/etc/pyrmq/shop.toml'
    """
    if not _USER.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name for a user: use up to 64 letters, digits, `_`, `-` and `.`"
        )
    root = os.path.abspath(os.path.expanduser(directory))  # noqa: PTH100, PTH111 - as in directory.py
    file = os.path.join(root, "users.json")  # noqa: PTH118 - as above
    with changing_alone(file):
        return _add(root, file, name, entries)


def _add(root: str, file: str, name: str, entries: list[dict[str, Any]]) -> str:
    text, _ = read_private("passwords", file)
    _guard_of(text, file)
    known: dict[str, Any] = json.loads(text)
    if name in {user["username"] for user in known["users"]}:
        raise ConfigError(f"`{file}` already has a user `{name}`")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    known["users"].append({"username": name, "password": secret})
    acl = {"subject": f"User:{name}", "policies": [{"entries": entries}]}
    known["acls"] = [*(known.get("acls") or ()), acl]
    changed = (json.dumps(known, indent=2) + "\n").encode()
    checked(changed, file)
    path = os.path.join(root, f"{name}.toml")  # noqa: PTH118 - as above
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"`{path}` exists: remove it, or choose another name") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as credentials:
            credentials.write(credentials_text(name, secret))
        write_private(file, changed)
    except BaseException:
        # Not if the disk failed last: then there is a user with this secret.
        if read_private("passwords", file)[0] != changed:
            os.unlink(path)  # noqa: PTH108 - as above
        raise
    return path


def checked(text: bytes, file: str) -> bytes:
    """Return the text of a file of users if a server could use it; warn of contradictions in it.

    Raises:
        ConfigError: It could not; the text names the file.

    Example:
        >>> checked(b"{}", "users.json")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: cannot use `users.json`: it has no users: ...
    """
    report_contradictions(_guard_of(text, file), file, _WARNING)
    return text


def _guard_of(text: bytes, file: str) -> _core.Guard:
    try:
        return _core.Guard("", True, text)
    except ConfigError as error:
        raise ConfigError(f"cannot use `{file}`: {error}") from error


def _entry(resource: str, *actions: str) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": "Allow"}
