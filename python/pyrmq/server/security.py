"""The users and policies of a server: their file, its changes while the server runs.

The file is JSON, with the objects of Apache's requests 3001 to 3010; `crates/auth/src/rules.rs`
shows it. A file that cannot be used stops a start; while the server runs, it is reported and the
users and policies from before stay in force.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyrmq.config import Options

PYTHON_ONLY = (
    "authenticationEnabled",
    "authorizationEnabled",
    "authConfigPath",
    "innerClientCredentialsPath",
)
"""Apache's names of the options that the core does not read."""

REFUSED_KEYS = {
    "aclEnable": "access control lists of 4.x (plain_acl.yml) are not built",
    "initAuthenticationUser": "it has a password: put the user into the file of `authConfigPath`",
    "innerClientAuthenticationCredentials": "it has a secret: put it into a file of mode 0600 and "
    "name that by `innerClientCredentialsPath`",
    "migrateAuthFromV1Enabled": "access control lists of 4.x (plain_acl.yml) are not built",
    "useTLS": "TLS is not built",
    "authenticationProvider": "only users with passwords are built",
    "authorizationProvider": "only policies of users are built",
    "authenticationWhitelist": "every request code is checked",
    "authorizationWhitelist": "every request code is checked",
}
"""Apache's keys that would protect a server there and are not built: it must not start as if."""

_LOOK_SECONDS = 0.25
"""How often the file is looked at: a change is in force within a second."""


def refuse_unsupported(role: str, properties: dict[str, str]) -> None:
    """Refuse a property file that asks for protection which this server does not have.

    Raises:
        ConfigError: It does.

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
    """Return in whose name a server's own requests are sent.

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


class UserFile:
    """The file of the users and policies, and what is in force of it.

    Example:
        >>> UserFile("users.json", "DefaultCluster", authorization=True)  # doctest: +SKIP
    """

    def __init__(self, path: str, cluster: str, authorization: bool) -> None:  # noqa: FBT001 - an option's value
        self.path = path
        # Held while the file and what is in force change together.
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
        """Return the file's text and what tells it from another version."""
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - see pyrmq.server.files
                status = os.fstat(file.fileno())
                text = file.read()
        except OSError as error:
            raise ConfigError(
                f"cannot read the users and policies in `{self.path}`: {error.strerror}"
            ) from error
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"others than its owner may read the passwords in `{self.path}` (mode "
                f"{stat.S_IMODE(status.st_mode):04o}): run `chmod 600 {self.path}`"
            )
        return text, _version(status)

    def change(self, code: int, fields: dict[str, str], body: bytes) -> None:
        """Do what a request asks (3001 to 3003, 3006 to 3008): on disk first, then in force.

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
        """Begin to look for changes of the file, in a thread."""
        self._stop.clear()
        self._watcher = threading.Thread(target=self._watch, name="pyrmq-users", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the watching."""
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
        """Read the file if it has changed; whether it had."""
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
