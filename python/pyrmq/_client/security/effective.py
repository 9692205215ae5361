"""The credentials and the TLS of a client: of its options, or of the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyrmq._client.security.credentials import PYRMQ_CREDENTIALS, Credentials, absolute_source
from pyrmq._client.security.keyring_secrets import KEYRING, secret_of_keyring, service_and_user
from pyrmq._client.security.tls import (
    PYRMQ_TLS,
    PYRMQ_TLS_KEY_PASSWORD,
    Tls,
    check_one_password,
    native_tls,
)
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from pyrmq import _core

__all__ = ["chosen_tls", "native_credentials", "native_security", "shared_credentials"]

_shared: dict[tuple[str, int, int], Credentials] = {}
_MAX_SHARED = 16


def native_credentials(given: Credentials | None) -> _core.Credentials | None:
    """Return the credentials for native clients, from the option or the environment.

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
    found = _of_environment()
    return None if found is None else found._core


def native_security(credentials: Credentials | None, tls: Tls | None) -> dict[str, Any]:
    """Return the arguments `credentials` and `tls` of the native clients.

    TLS is that of the option; else that of the credentials file, if credentials are given as an
    option; else that of the environment: ``PYRMQ_TLS`` and so on, then the file of
    ``PYRMQ_CREDENTIALS``, unless its credentials are others.

    Raises:
        ConfigError: An option is of another type, a file cannot be used, option and environment
            differ, or the environment and the file have a password of the client's key.
    """
    native = native_credentials(credentials)
    if credentials is not None:
        _check_one_user(credentials)
    return {"credentials": native, "tls": native_tls(chosen_tls(credentials, tls))}


def chosen_tls(credentials: Credentials | None = None, tls: Tls | None = None) -> Tls | None:
    """Return the TLS of a client with these options; see :func:`native_security`.

    Raises:
        ConfigError: The environment is wrong, a credentials file cannot be used, or the password of
            the client's key is both in the environment and in the credentials file.
    """
    if tls is None and os.environ.get(PYRMQ_TLS_KEY_PASSWORD):
        given = _of_environment() if credentials is None else credentials
        if given is not None and given.tls is not None:
            check_one_password(given.tls, given._source)
    if tls is None and isinstance(credentials, Credentials):
        tls = credentials.tls
    if tls is None:
        tls = Tls.from_environment()
    if tls is None and not os.environ.get(PYRMQ_TLS):
        if credentials is None:
            found = _of_environment()
            tls = None if found is None else found.tls
        else:
            tls = credentials._environment_tls
    return tls


def _check_one_user(given: Credentials) -> None:
    """Check that the environment names no other credentials than the option.

    Once, as long as the variable stays: hours later, when the file is gone, a client may make
    others.

    Raises:
        ConfigError: They differ, or the environment's cannot be used.
    """
    named, source = os.environ.get(PYRMQ_CREDENTIALS, ""), given._source
    if not named or named == given._named:
        return
    # One file may have been changed since the option was read.
    if named == source or _is_one_file(named, source):
        return
    found = _of_environment()
    if found is not None and found._content != given._content:
        is_same = found.access_key == given.access_key
        raise ConfigError(
            f"credentials are given twice and differ: the option has the user {given.access_key!r}"
            f"{f' from `{source}`' if source else ''}, and `{named}`, which the environment "
            f"variable {PYRMQ_CREDENTIALS} names, has "
            f"{'another secret of that user' if is_same else f'the user {found.access_key!r}'}: "
            f"unset {PYRMQ_CREDENTIALS}, or leave out the option"
        )
    given._named, given._environment_tls = named, None if found is None else found.tls


def _is_one_file(named: str, source: str | None) -> bool:
    if source is None or named.startswith(KEYRING) or source.startswith(KEYRING):
        return False
    return os.path.realpath(named) == os.path.realpath(source)


def _of_environment() -> Credentials | None:
    path = os.environ.get(PYRMQ_CREDENTIALS, "")
    return shared_credentials(path, f", which {PYRMQ_CREDENTIALS} names") if path else None


def shared_credentials(path: str, source: str = "") -> Credentials:
    """Read a credentials file; the same object for the same unchanged file.

    Args:
        path: The file, or `keyring:SERVICE/USER`.
        source: Where the path comes from, for error texts.

    Raises:
        ConfigError: The file cannot be used.
    """
    secret = None
    if path.startswith(KEYRING):
        service, user = service_and_user(path)
        secret = secret_of_keyring(service, user)
        # Python's hash has a different seed in each process, and is not stored anywhere.
        key = (path, hash(secret), 0)
    else:
        try:
            status = os.stat(path)  # noqa: PTH116 - as cheap as can be: every client asks
        except OSError as error:
            raise ConfigError(f"cannot read `{path}`{source}: {error.strerror}") from error
        key = (path, status.st_mtime_ns, status.st_ino)
    if key not in _shared:
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        made = Credentials.from_file(path) if secret is None else Credentials(user, secret)
        made._source = absolute_source(path)
        _shared[key] = made
    return _shared[key]
