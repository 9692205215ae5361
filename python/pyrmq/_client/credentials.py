"""In whose name a client sends: the user and its secret."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn, Self, final

from pyrmq import _core
from pyrmq.errors import ConfigError

__all__ = ["PYRMQ_CREDENTIALS", "Credentials", "native_credentials"]

PYRMQ_CREDENTIALS = "PYRMQ_CREDENTIALS"
"""Environment variable with the path of a credentials file, for clients without the option."""

_KEYS = ("accessKey", "secretKey", "securityToken")


@final
class Credentials:
    """A user of the cluster and the secret that its requests are signed with.

    Requests are signed by HMAC-SHA1 as Apache's clients sign them (`AclClientRPCHook`). A signature
    proves who sent a request; it does not hide the request. The secret cannot be read back: it is
    in no `repr`, and the object cannot be pickled, copied or turned into JSON.

    Args:
        access_key: The user's name.
        secret_key: Its password.
        security_token: A temporary token, where the server asks for one.

    Raises:
        ConfigError: One of them is empty or no text.

    Example:
        >>> Credentials("alice", "s3cret-key")
        Credentials(access_key='alice')
    """

    __slots__ = ("_access_key", "_core")

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        given: tuple[tuple[str, object], ...] = (
            ("access_key", access_key),
            ("secret_key", secret_key),
        )
        for name, value in given:
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"option `{name}` of the credentials is empty or no text")
        self._access_key = access_key
        self._core = _core.Credentials(access_key, secret_key, security_token)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file: a JSON object with `accessKey`, `secretKey` and, if needed, `securityToken`.

        Args:
            path: The file. Only its owner may read it (mode 0600).

        Raises:
            ConfigError: The file cannot be read, others may read it, or it is not such an object.

        Example:
            >>> Credentials.from_file("alice.json")  # doctest: +SKIP
            Credentials(access_key='alice')
        """
        given = _read(Path(path))
        unknown = sorted(given.keys() - set(_KEYS))
        if unknown:
            raise ConfigError(f"`{path}` has the unknown keys {', '.join(unknown)}: {_NEEDS}")
        values = [given.get(key) for key in _KEYS]
        if not all(isinstance(value, str) and value for value in values[:2]):
            raise ConfigError(f"`{path}` lacks `accessKey` or `secretKey`: {_NEEDS}")
        if not isinstance(values[2], str | None):
            raise ConfigError(f"`securityToken` in `{path}` is no text")
        return cls(str(values[0]), str(values[1]), values[2])

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the file that the environment variable `PYRMQ_CREDENTIALS` names; None without it.

        Raises:
            ConfigError: The file cannot be used; see :meth:`from_file`.

        Example:
            >>> Credentials.from_environment()  # doctest: +SKIP
        """
        path = os.environ.get(PYRMQ_CREDENTIALS, "")
        return cls.from_file(path) if path else None

    @property
    def access_key(self) -> str:
        """The user's name."""
        return self._access_key

    def __repr__(self) -> str:
        """Name the user, never the secret."""
        return f"Credentials(access_key={self._access_key!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the secret would lie in the pickle."""
        raise TypeError(
            "credentials cannot be pickled or copied: their secret would be readable there; "
            f"make them where they are used, or set {PYRMQ_CREDENTIALS}"
        )


_NEEDS = 'it must be {"accessKey": "...", "secretKey": "..."}'


def _read(path: Path) -> dict[str, Any]:
    # Imported here: most clients read no file.

    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"cannot read the credentials file `{path}`: {reason}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"others than its owner may read the credentials file `{path}` (mode "
            f"{stat.S_IMODE(mode):04o}): run `chmod 600 {path}`"
        )
    try:
        given = json.loads(text)
    except ValueError:
        # The error itself would quote a part of the file.
        given = None
    if not isinstance(given, dict):
        raise ConfigError(f"`{path}` is not a JSON object: {_NEEDS}") from None
    return given


_shared: dict[tuple[str, int, int], Credentials] = {}


def native_credentials(given: Credentials | None) -> _core.Credentials | None:
    """Return what the native clients take: of the option, or of the environment.

    Clients that read the same unchanged file get the same object, and so share connections.

    Raises:
        ConfigError: The option is of another type, or the environment's file cannot be used.
    """
    if given is not None:
        if not isinstance(given, Credentials):
            raise ConfigError(
                f"option `credentials` is of type {type(given).__name__}, it must be "
                "`pyrmq.Credentials`"
            )
        return given._core
    path = os.environ.get(PYRMQ_CREDENTIALS, "")
    if not path:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 - as cheap as can be: every client asks
    except OSError as error:
        raise ConfigError(
            f"cannot read `{path}`, which {PYRMQ_CREDENTIALS} names: {error.strerror}"
        ) from error
    key = (path, status.st_mtime_ns, status.st_ino)
    if key not in _shared:
        _shared.clear()
        _shared[key] = Credentials.from_file(path)
    return _shared[key]._core
