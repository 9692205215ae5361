"""A directory with the files of a secure cluster: authority, certificate, users, their secrets.

```
ca.pem  ca-key.pem          the authority; its key signs further certificates and can live elsewhere
server.pem  server-key.pem  the servers' certificate
users.json                  users and policies, of a name server and one broker
admin.toml  app.toml        credentials files of clients: may do everything; may send and consume
server.toml                 the servers' own credentials
```
"""

from __future__ import annotations

import json
import os
import re
import secrets
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

HOSTS = ("localhost", "127.0.0.1", "::1")
"""The names in every certificate."""
DAYS = 3650
MAX_DAYS = 36_500
SECRET_BYTES = 24
_HOST_CHARACTERS = 253
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_FILES = ("ca.pem", "server.pem", "server-key.pem", "users.json", "server.toml")
_MAY_USE = [
    {"resource": "Topic:*", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
    {"resource": "Group:*", "actions": ["Sub", "Get"], "decision": "Allow"},
]


def make_secure(
    directory: str | os.PathLike[str], hosts: Iterable[str] = (), *, days: int = DAYS
) -> list[str]:
    """Make the directory.

    Args:
        directory: It must not exist or be empty; it gets mode 0700, its files mode 0600.
        hosts: Names and addresses by which clients reach the servers, in addition to those of
            this machine's loopback.
        days: How long the certificates are valid.

    Returns:
        The files' names.

    Raises:
        ConfigError: The directory is not empty, or a host cannot be in a certificate.
        OSError: It cannot be written.

    Example:
        >>> make_secure("/etc/pyrmq", ["broker.example"])  # doctest: +SKIP
    """
    root = os.path.expanduser(directory)  # noqa: PTH111 - as in the other modules of servers
    if os.path.isdir(root) and os.listdir(root):  # noqa: PTH112, PTH208 - as above
        raise ConfigError(f"`{root}` is not empty: its secrets would be overwritten")
    if not 1 <= days <= MAX_DAYS:
        raise ConfigError(f"certificates cannot be valid for {days} days: give 1 to {MAX_DAYS}")
    named = list(dict.fromkeys((*HOSTS, *hosts)))
    wrong = [name for name in named if not _is_host(name)]
    if wrong:
        raise ConfigError(
            f"{wrong[0]!r} is not a host name or address for a certificate: give each host by "
            "itself, without scheme, port and brackets, such as broker.example, 10.0.0.3 or ::1"
        )
    authority, authority_key, certificate, key = _core.make_certificates(named, days)
    passwords = {name: secrets.token_urlsafe(SECRET_BYTES) for name in ("admin", "app", "server")}
    files = {
        "ca.pem": authority,
        "ca-key.pem": authority_key,
        "server.pem": certificate + authority,
        "server-key.pem": key,
        "users.json": json.dumps(_users(passwords), indent=2) + "\n",
        **{f"{name}.toml": credentials_text(name, secret) for name, secret in passwords.items()},
    }
    os.makedirs(root, mode=0o700, exist_ok=True)  # noqa: PTH103 - as above
    os.chmod(root, 0o700)  # noqa: PTH101 - as above
    for name, text in files.items():
        path = os.path.join(root, name)  # noqa: PTH118 - as above
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    return list(files)


def secure_values(directory: str | os.PathLike[str]) -> dict[str, object]:
    """Return the options of a server, of either kind, that uses such a directory.

    Raises:
        ConfigError: A file is missing.

    Example:
        >>> secure_values("/etc/pyrmq")["tls_server_mode"]  # doctest: +SKIP
        'enforcing'
    """
    root = os.path.abspath(os.path.expanduser(directory))  # noqa: PTH100, PTH111 - as above
    paths = {name: os.path.join(root, name) for name in _FILES}  # noqa: PTH118 - as above
    missing = [name for name, path in paths.items() if not os.path.exists(path)]  # noqa: PTH110 - as above
    if missing:
        raise ConfigError(
            f"`{root}` lacks {', '.join(missing)}: create it with `pyrmq secure init {directory}`; "
            "remove it first if an earlier run was interrupted"
        )
    return {
        "tls_server_mode": "enforcing",
        "tls_server_cert_path": paths["server.pem"],
        "tls_server_key_path": paths["server-key.pem"],
        "tls_client_trust_cert_path": paths["ca.pem"],
        "authentication_enabled": True,
        "authorization_enabled": True,
        "auth_config_path": paths["users.json"],
        "inner_client_credentials_path": paths["server.toml"],
    }


def check_secure(options: Any) -> None:  # noqa: ANN401 - of either server
    """Refuse options that contradict `--secure`, from any source.

    Raises:
        ConfigError: An option of the command line, the environment or the property file does.

    Example:
        >>> check_secure(options)  # doctest: +SKIP
    """
    weak = {
        "tls.server.mode": options.tls_server_mode != "enforcing",
        "tls.client.authServer": not options.tls_client_auth_server,
        "tls.config.file": options.tls_config_file is not None,
        "useTLS": options.use_tls == "false",
        "authenticationEnabled": not options.authentication_enabled,
        "authorizationEnabled": not options.authorization_enabled,
    }
    undone = [key for key, is_weak in weak.items() if is_weak]
    if undone:
        raise ConfigError(
            f"`--secure` and the option {', '.join(undone)} contradict each other: remove the "
            "option from command line, environment and property file, or start without `--secure` "
            "and set each option of TLS and of users yourself"
        )


def _is_host(name: str) -> bool:
    """Whether a name is an IP address, or one of DNS.

    Example:
        >>> [_is_host(name) for name in ("broker-1.example", "::1", "10.0.0.300", "a:1", "a,b")]
        [True, True, False, False, False]
    """
    import ipaddress

    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.split(".")
        # The last label of a name is not a number: that would be a wrong address.
        return (
            len(name) <= _HOST_CHARACTERS
            and all(_LABEL.fullmatch(label) for label in labels)
            and not labels[-1].isdigit()
        )
    # A zone is valid on one machine only.
    return "%" not in name


def _users(passwords: dict[str, str]) -> dict[str, object]:
    return {
        "users": [
            {"username": "admin", "password": passwords["admin"], "userType": "Super"},
            {"username": "server", "password": passwords["server"], "userType": "Super"},
            {"username": "app", "password": passwords["app"]},
        ],
        "acls": [{"subject": "User:app", "policies": [{"entries": _MAY_USE}]}],
    }


def credentials_text(name: str, secret: str) -> str:
    """Return the credentials file of a user of the directory.

    Example:
        >>> credentials_text("app", "x").splitlines()[0]
        'accessKey = "app"'
    """
    return f'accessKey = "{name}"\nsecretKey = "{secret}"\n\n[tls]\ntrust = "ca.pem"\n'
