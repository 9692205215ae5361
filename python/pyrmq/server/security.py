"""The users and policies of a server: their file, its changes while the server runs.

The file is JSON, with the objects of Apache's requests 3001 to 3010; `crates/auth/src/rules.rs`
shows it. A file that cannot be used stops a start; while the server runs, it is reported and the
users and policies from before stay in force.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._client.secrets import check_private
from pyrmq.config.tls import TLS_KEYS
from pyrmq.errors import ConfigError
from pyrmq.server.tls import server_tls

if TYPE_CHECKING:
    from pyrmq.config import Options

PYTHON_ONLY = (
    "authenticationEnabled",
    "authorizationEnabled",
    "authConfigPath",
    "innerClientCredentialsPath",
    *TLS_KEYS,
)
"""Apache's names of the options that the core does not read."""

REFUSED_KEYS = {
    "aclEnable": "access control lists of 4.x (plain_acl.yml) are not built",
    "initAuthenticationUser": "it has a password: put the user into the file of `authConfigPath`",
    "innerClientAuthenticationCredentials": "it has a secret: put it into a file of mode 0600 and "
    "name that by `innerClientCredentialsPath`",
    "migrateAuthFromV1Enabled": "access control lists of 4.x (plain_acl.yml) are not built",
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

_LOOK_SECONDS = 0.25
"""How often the file is checked: a change is in force within a second."""


def refuse_unsupported(role: str, properties: dict[str, str]) -> None:
    """Refuse a property file that enables protection which this server does not have.

    Raises:
        ConfigError: It enables such protection.

    Example:
        >>> refuse_unsupported("broker", {"aclEnable": "true"})  # doctest: +SKIP
    """
    for key, reason in REFUSED_KEYS.items():
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


def warn_if_open(role: str, options: Any, *, has_tls: bool) -> None:  # noqa: ANN401 - of either server
    """Warn if everybody who reaches a server may do everything, from other machines, too.

    Args:
        role: What the server is.
        options: Its options.
        has_tls: Whether it takes TLS.

    Example:
        >>> from pyrmq.config import NameServerOptions
        >>> warn_if_open("name server", NameServerOptions(bind_address="::1"), has_tls=False)
    """
    address = options.bind_address or ""
    if options.authentication_enabled or has_tls or _is_loopback(address):
        return
    from pyrmq._client import log

    log.get(f"pyrmq.{role.replace(' ', '')}").warning(
        "this %s listens on %s, which other machines may reach, without users and without TLS: "
        "everybody there may do everything; see docs/security.md, or `pyrmq secure init`",
        role,
        address or "every address",
    )


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in {"::1", "localhost"}


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
) -> tuple[UserFile | None, _core.ServerSecurity]:
    """Return the file of the users, and how a server protects its requests.

    Raises:
        ConfigError: A file cannot be used, or the options contradict each other.
    """
    users, tls = user_file(options, cluster), server_tls(options)
    warn_if_open(role, options, has_tls=tls.server is not None)
    return users, _core.ServerSecurity(
        guard=None if users is None else users.guard,
        credentials=own_credentials(options),
        server_tls=tls.server,
        client_tls=tls.client,
    )


class UserFile:
    """The file of users and policies, and the version that is in force.

    Example:
        >>> UserFile("users.json", "DefaultCluster", authorization=True)  # doctest: +SKIP
    """

    def __init__(self, path: str, cluster: str, authorization: bool) -> None:  # noqa: FBT001 - an option's value
        self.path = path
        # Held while the file and the version in force change together.
        self._changing = threading.Lock()
        text, self._seen = self._read()
        try:
            self.guard = _core.Guard(cluster, authorization, text)
        except ConfigError as error:
            raise ConfigError(f"cannot use `{path}`: {error}") from error
        if self.guard.users == 0:
            raise ConfigError(f"`{path}` has no users: nobody could send a request")
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def _read(self) -> tuple[bytes, tuple[int, int, int]]:
        """Return the file's text and what distinguishes it from other versions."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - see pyrmq.server.files
                status = os.fstat(file.fileno())
                text = file.read()
        except OSError as error:
            raise ConfigError(
                f"cannot read the users and policies in `{self.path}`: {error.strerror}"
            ) from error
        check_private("the passwords in", self.path, status.st_mode)
        return text, _version(status)

    def change(self, code: int, fields: dict[str, str], body: bytes) -> None:
        """Apply a request (3001 to 3003, 3006 to 3008): first on disk, then in force.

        Raises:
            ConfigError: The request is wrong; nothing has changed.
            OSError: The file cannot be written; nothing has changed.
        """
        from pyrmq._client import log

        with self._changing:
            self._reload()
            text = self.guard.changed(code, fields, body)
            _write_private(self.path, text)
            self._seen = _version(os.stat(self.path))  # noqa: PTH116 - as above
            self.guard.replace(text)
        log.get("pyrmq.audit").info(
            "users and policies changed: request %d for %r by user %r",
            code,
            fields.get("username") or fields.get("subject", ""),
            fields.get("AccessKey", ""),
        )

    def watch(self) -> None:
        """Start a thread that checks the file for changes."""
        self._stop.clear()
        self._watcher = threading.Thread(target=self._watch, name="pyrmq-users", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Stop the thread that checks the file."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(5.0)

    def _watch(self) -> None:
        from pyrmq._client import log

        last = ""
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                with self._changing:
                    if self._reload():
                        log.get("pyrmq.audit").info(
                            "users and policies read again from %s: %d users",
                            self.path,
                            self.guard.users,
                        )
                last = ""
            except (ConfigError, OSError) as error:
                if str(error) != last:
                    last = str(error)
                    log.get("pyrmq.audit").error(
                        "the users and policies from before stay in force: %s", error
                    )

    def _reload(self) -> bool:
        """Read the file if it has changed. Returns whether it had."""
        if _version(os.stat(self.path)) == self._seen:  # noqa: PTH116 - four times a second
            return False
        text, seen = self._read()
        self.guard.replace(text)
        self._seen = seen
        return True


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ino, status.st_size


def _write_private(path: str, text: bytes) -> None:
    """Replace a file that only its owner may read; a crash leaves the old or the new one."""
    fresh = path + ".tmp"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)  # noqa: PTH105 - as above
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)  # noqa: PTH100, PTH120 - as above
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _expanded(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib's import costs more than the start
