"""The users and policies of a server: their file, its changes while the server runs.

The file is JSON, with the objects of Apache's requests 3001 to 3010; `crates/auth/src/rules.rs`
shows it. A file that cannot be used stops a start; while the server runs, it is reported and the
users and policies from before stay in force.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.config.protection import PROTECTION_KEYS
from pyrmq.config.tls import TLS_KEYS
from pyrmq.errors import ConfigError
from pyrmq.server.plain_acl import acl_files
from pyrmq.server.protection import native_protection, warn_if_open
from pyrmq.server.tls import server_tls
from pyrmq.server.watched import Watched, read_private, version, write_private

if TYPE_CHECKING:
    from pyrmq.config import Options
    from pyrmq.server.plain_acl import AclFiles

PYTHON_ONLY = (
    "authenticationEnabled",
    "authorizationEnabled",
    "authConfigPath",
    "innerClientCredentialsPath",
    *TLS_KEYS,
    *PROTECTION_KEYS,
)
"""Apache's names of the options that the core of neither server reads."""

REFUSED_KEYS = {
    "initAuthenticationUser": "it has a password: put the user into the file of `authConfigPath`",
    "innerClientAuthenticationCredentials": "it has a secret: put it into a file of mode 0600 and "
    "name that by `innerClientCredentialsPath`",
    "migrateAuthFromV1Enabled": "accounts of 4.x are not made into users; `aclEnable` of a broker "
    "uses them as they are",
    "tls.server.keyPassword": "it is a secret: put it into a file of mode 0600 and name that by "
    "`tls.config.file`",
    "tls.client.keyPassword": "it is a secret: put it into a file of mode 0600 and name that by "
    "`tls.config.file`",
    "authenticationProvider": "only users with passwords are built",
    "authorizationProvider": "only policies of users are built",
    "authenticationWhitelist": "every request code is checked",
    "authorizationWhitelist": "every request code is checked",
}
"""Apache's keys for protection that is not built here: with one set, a server does not start."""

_OF_BROKERS = {
    "aclEnable": "brokers check the accounts of 4.x; a name server checks users of 5.x, with "
    "`authenticationEnabled`",
}
"""Keys for protection that only brokers have."""


def refuse_unsupported(role: str, properties: dict[str, str]) -> None:
    """Refuse a property file that enables protection which this server does not have.

    Raises:
        ConfigError: It enables such protection.

    Example:
        >>> refuse_unsupported("name server", {"aclEnable": "true"})  # doctest: +SKIP
    """
    refused = REFUSED_KEYS if role == "broker" else {**REFUSED_KEYS, **_OF_BROKERS}
    for key, reason in refused.items():
        value = properties.get(key, "").strip()
        if value and value.lower() != "false":
            raise ConfigError(
                f"the {role} cannot do what `{key}` asks for: {reason}; it does not start, because "
                "it would serve everybody. docs/security.md has what is there"
            )


def own_credentials(options: Options) -> _core.Credentials | None:
    """Return the credentials of the requests that a server sends itself.

    Raises:
        ConfigError: The file cannot be used.
    """
    from pyrmq._client.credentials import Credentials, native_credentials

    path = getattr(options, "inner_client_credentials_path", None)
    if path is None:
        return None
    return native_credentials(Credentials.from_file(_expanded(path)))


def user_file(options: Any, cluster: str) -> UserFile | None:  # noqa: ANN401 - of either server
    """Read the file of a server's options; None if requests are not checked.

    Raises:
        ConfigError: The file is missing or wrong, or the options contradict each other.
    """
    if not options.authentication_enabled:
        if options.authorization_enabled:
            raise ConfigError(
                "`authorizationEnabled` is set without `authenticationEnabled`: anybody could name "
                "any user; set both"
            )
        return None
    if options.auth_config_path is None:
        raise ConfigError(
            "`authenticationEnabled` is set without `authConfigPath`: name the file of the users "
            "and policies"
        )
    return UserFile(_expanded(options.auth_config_path), cluster, options.authorization_enabled)


def protection(
    role: str,
    options: Any,  # noqa: ANN401 - of either server
    cluster: str,
) -> tuple[UserFile | None, AclFiles | None, _core.ServerSecurity]:
    """Return the files that say who may do what, and how a server protects its requests.

    Raises:
        ConfigError: A file cannot be used, or the options contradict each other.
    """
    # A name server has no accounts of 4.x.
    acl = acl_files(options) if hasattr(options, "acl_enable") else None
    users, tls = user_file(options, cluster), server_tls(options)
    warn_if_open(role, options)
    native = _core.ServerSecurity(
        cluster=cluster,
        guard=None if users is None else users.guard,
        plain=None if acl is None else acl.guard,
        credentials=own_credentials(options),
        server_tls=tls.server,
        client_tls=tls.client,
        **native_protection(options),
    )
    return users, acl, native


class UserFile(Watched):
    """The file of users and policies, and the version that is in force.

    Example:
        >>> UserFile("users.json", "DefaultCluster", authorization=True)  # doctest: +SKIP
    """

    def __init__(self, path: str, cluster: str, authorization: bool) -> None:  # noqa: FBT001 - an option's value
        super().__init__("users and policies")
        self.path = path
        text, self._seen = read_private("passwords", path)
        try:
            self.guard = _core.Guard(cluster, authorization, text)
        except ConfigError as error:
            raise ConfigError(f"cannot use `{path}`: {error}") from error

    def change(self, code: int, fields: dict[str, str], body: bytes) -> None:
        """Apply a request (3001 to 3003, 3006 to 3008): first on disk, then in force.

        Raises:
            ConfigError: The request is wrong; nothing has changed.
            OSError: The file cannot be written; nothing has changed.
        """
        with self.changing:
            self.reload()
            text = self.guard.changed(code, fields, body)
            write_private(self.path, text)
            self._seen = version(self.path)
            self.guard.replace(text)

    def reload(self) -> str | None:
        """Read the file if it has changed."""
        if version(self.path) == self._seen:
            return None
        text, seen = read_private("passwords", self.path)
        self.guard.replace(text)
        self._seen = seen
        return f"{self.guard.users} users in {self.path}"


def _expanded(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's import costs more than the start
