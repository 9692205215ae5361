"""The users and policies of a server: their file, its changes while the server runs.

The file is JSON, with the objects of Apache's requests 3001 to 3010; `crates/auth/src/rules.rs`
shows it. A file that cannot be used stops a start; while the server runs, it is reported and the
old users and policies stay in force. A file with policies that contradict each other is used, as by
Apache's servers, and reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq.errors import ConfigError
from pyrmq.server.files import expanded
from pyrmq.server.security.watched import (
    Watched,
    changing_alone,
    read_private,
    version,
    write_private,
)

if TYPE_CHECKING:
    from pyrmq.config import Options


# Levels of `logging`, which is imported when there is something to write.
_ERROR = 40


def own_credentials(options: Options) -> _core.Credentials | None:
    """Return the credentials of the requests that a server sends itself.

    Raises:
        ConfigError: The file cannot be used.
    """
    path = getattr(options, "inner_client_credentials_path", None)
    if path is None:
        return None
    from pyrmq._client.security.credentials import Credentials
    from pyrmq._client.security.effective import native_credentials

    return native_credentials(Credentials.from_file(expanded(path)))


def user_file(options: Any, cluster: str) -> UserFile | None:  # noqa: ANN401 - of either server
    """Read the file of a server's options; None if requests are not checked.

    Raises:
        ConfigError: The file is missing or wrong, or the options contradict each other.
    """
    if not options.authentication_enabled:
        if options.authorization_enabled:
            raise ConfigError(
                "`authorizationEnabled` is set without `authenticationEnabled`: anybody could "
                "claim to be any user; set both"
            )
        return None
    if options.auth_config_path is None:
        raise ConfigError(
            "`authenticationEnabled` is set without `authConfigPath`: name the file of the users "
            "and policies"
        )
    return UserFile(expanded(options.auth_config_path), cluster, options.authorization_enabled)


_MAX_LINES = 20
"""How many contradictions of one file are in the log."""


def report_contradictions(guard: _core.Guard, path: str, level: int) -> None:
    """Write to the log which policies of a file contradict each other.

    Args:
        guard: The policies.
        path: The file.
        level: Level of the lines, as in `logging`.

    Example:
        >>> report_contradictions(guard, "users.json", 40)  # doctest: +SKIP
    """
    found = guard.contradictions()
    if not found:
        return
    from pyrmq._client import log

    logger = log.get("pyrmq.config")
    for each in found[:_MAX_LINES]:
        logger.log(level, "in `%s`, %s: until then, the one that denies counts", path, each)
    if len(found) > _MAX_LINES:
        logger.log(
            level, "in `%s`, %d further resources are like that", path, len(found) - _MAX_LINES
        )


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
        report_contradictions(self.guard, path, _ERROR)

    def change(self, code: int, fields: dict[str, str], body: bytes) -> None:
        """Apply a request (3001 to 3003, 3006 to 3008): first on disk, then in force.

        Raises:
            ConfigError: The request is wrong; nothing has changed.
            OSError: The file cannot be written; nothing has changed.
        """
        with self.changing, changing_alone(self.path):
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
        report_contradictions(self.guard, self.path, _ERROR)
        return f"{self.guard.users} users in {self.path}"
