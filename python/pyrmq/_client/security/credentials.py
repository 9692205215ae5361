"""The user that a client's requests are sent as, and its secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NoReturn, Self, final

from pyrmq import _core
from pyrmq._client.security.keyring_secrets import KEYRING, secret_of_keyring, service_and_user
from pyrmq._client.security.secrets import check_private, nearest_keys
from pyrmq._client.security.tls import Tls
from pyrmq.errors import ConfigError

__all__ = ["PYRMQ_CREDENTIALS", "Credentials"]

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
        security_token: A temporary token, if the server requires one.

    Raises:
        ConfigError: One of them is empty or not a string.

    Example:
        >>> Credentials("alice", "s3cret-key")
        Credentials(access_key='alice')
    """

    __slots__ = (
        "_access_key",
        "_content",
        "_core",
        "_environment_tls",
        "_named",
        "_source",
        "_tls",
    )

    def __init__(self, access_key: str, secret_key: str, security_token: str | None = None) -> None:
        given: dict[str, object] = {"access_key": access_key, "secret_key": secret_key}
        for name, value in given.items():
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"option `{name}` of the credentials is empty or not a string")
        self._access_key = access_key
        self._core = _core.Credentials(access_key, secret_key, security_token)
        # Only to compare: the hash has a different seed in each process.
        self._content = hash((access_key, secret_key, security_token or None))
        self._tls: Tls | None = None
        # The file or keyring entry, in the form that `absolute_source` returns.
        self._source: str | None = None
        # What the environment variable said when they were found to be the same, and the TLS of the
        # file that it names.
        self._named: str | None = None
        self._environment_tls: Tls | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file: an object with `accessKey`, `secretKey` and, if needed, `securityToken`.

        It may have an object `tls` with the arguments of :class:`pyrmq.Tls` as `trust`, `cert`,
        `key`, `keyPassword`, `serverName`, `verify` and `crl`; relative paths start at the file's
        directory. Clients with these credentials then use TLS.

        Args:
            path: The file: TOML if its name ends in `.toml`, else JSON. Only its owner may read it
                (mode 0600).

        Raises:
            ConfigError: The file cannot be read, others may read it, or it is not such an object.

        Example:
            >>> Credentials.from_file("alice.json")  # doctest: +SKIP
            Credentials(access_key='alice')
        """
        given = _read(Path(path))
        tls = given.pop("tls", None)
        if not isinstance(tls, dict | None):
            raise ConfigError(f"`tls` in `{path}` is not an object: {_NEEDS}")
        unknown = sorted(given.keys() - set(_KEYS))
        if unknown:
            found = f"the unknown keys {', '.join(unknown)}"
            meant = nearest_keys(unknown, (*_KEYS, "tls"))
            raise ConfigError(f"`{path}` has {found}: {_NEEDS}{meant}")
        values = [given.get(key) for key in _KEYS]
        if not all(isinstance(value, str) and value for value in values[:2]):
            raise ConfigError(f"`{path}` lacks `accessKey` or `secretKey`: {_NEEDS}")
        if not isinstance(values[2], str | None):
            raise ConfigError(f"`securityToken` in `{path}` is not a string")
        made = cls(str(values[0]), str(values[1]), values[2])
        made._source = absolute_source(path)
        if tls is not None:
            made._tls = Tls.from_mapping(tls, str(Path(path).absolute().parent), str(path))
        return made

    @classmethod
    def from_keyring(cls, service: str, access_key: str) -> Self:
        """Read the secret from the system's keyring; needs the extra `pyrmq-rocketmq[keyring]`.

        ``keyring set SERVICE USER`` stores it. `PYRMQ_CREDENTIALS` and `--credentials` take
        ``keyring:SERVICE/USER``.

        Args:
            service: The name under which the secret is stored.
            access_key: The user's name, in the keyring and in the cluster.

        Raises:
            ConfigError: The package is missing, the keyring cannot be used, or it has no such
                secret.

        Example:
            >>> Credentials.from_keyring("rocketmq", "alice")  # doctest: +SKIP
            Credentials(access_key='alice')
        """
        made = cls(access_key, secret_of_keyring(service, access_key))
        made._source = f"{KEYRING}{service}/{access_key}"
        return made

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read the credentials that the variable `PYRMQ_CREDENTIALS` names; None without it.

        It names a file, or a secret of the keyring as ``keyring:SERVICE/USER``.

        Raises:
            ConfigError: It cannot be used; see :meth:`from_file` and :meth:`from_keyring`.

        Example:
            >>> Credentials.from_environment()  # doctest: +SKIP
        """
        path = os.environ.get(PYRMQ_CREDENTIALS, "")
        if not path:
            return None
        if path.startswith(KEYRING):
            made = cls.from_keyring(*service_and_user(path))
        else:
            made = cls.from_file(path)
        made._named = path
        return made

    @property
    def access_key(self) -> str:
        """The user's name."""
        return self._access_key

    @property
    def tls(self) -> Tls | None:
        """The TLS that the file configures."""
        return self._tls

    def __repr__(self) -> str:
        """Name the user, never the secret."""
        return f"Credentials(access_key={self._access_key!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the pickle would contain the secret."""
        raise TypeError(
            "credentials cannot be pickled or copied: the copy would expose their secret; "
            f"make them where they are used, or set {PYRMQ_CREDENTIALS}"
        )


_NEEDS = 'it must be {"accessKey": "...", "secretKey": "..."}'


def _read(path: Path) -> dict[str, Any]:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"cannot read the credentials file `{path}`: {reason}") from error
    check_private("the credentials file", path, mode)
    given = parsed(path, text)
    if given is None:
        kind = "TOML" if path.suffix == ".toml" else "a JSON object"
        raise ConfigError(f"`{path}` is not {kind}: {_NEEDS}") from None
    return given


def parsed(path: Path, text: str) -> dict[str, Any] | None:
    """Return the content of a credentials file; None if it is not TOML or JSON."""
    given: Any
    try:
        if path.suffix == ".toml":
            # Imported here: most clients read no file.
            import tomllib

            given = tomllib.loads(text)
        else:
            given = json.loads(text)
    except ValueError:
        # The error itself would quote part of the file.
        return None
    return given if isinstance(given, dict) else None


def absolute_source(source: str | os.PathLike[str]) -> str:
    text = os.fspath(source)
    # Not resolved: this runs for every client.
    return text if text.startswith(KEYRING) else os.path.abspath(text)  # noqa: PTH100 - as cheap as can be
