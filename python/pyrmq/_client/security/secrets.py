"""Which options hold a secret, and which files only their owner may read."""

from __future__ import annotations

import os
import stat

from pyrmq._client import log
from pyrmq.errors import ConfigError

__all__ = ["HIDDEN", "check_private", "is_secret", "warn_of_readers"]

HIDDEN = "(hidden)"
_WORDS = ("secret", "password", "passwd", "token", "credential", "accesskey", "signature")


def is_secret(key: str) -> bool:
    """Whether the name of an option says that its value is a secret.

    Example:
        >>> is_secret("innerClientAuthenticationCredentials"), is_secret("brokerName")
        (True, False)
    """
    name = key.lower().replace("_", "").replace("-", "")
    return any(word in name for word in _WORDS)


def check_private(what: str, path: object, mode: int) -> None:
    """Check that only its owner may read a file of secrets.

    Args:
        what: What others could read, as the error says it.
        path: The file.
        mode: Its mode, from `os.stat`.

    Raises:
        ConfigError: Others may read it.

    Example:
        >>> check_private("the passwords in", "users.json", 0o100600)
    """
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"users other than its owner may read {what} `{path}` (mode {stat.S_IMODE(mode):04o}): "
            f"run `chmod 600 {path}`"
        )


def warn_of_readers(key: str | None) -> None:
    """Warn if users other than its owner may read the file of a private key.

    Args:
        key: The file, if there is one.

    Example:
        >>> warn_of_readers(None)
    """
    try:
        mode = 0 if key is None else stat.S_IMODE(os.stat(key).st_mode)  # noqa: PTH116 - as cheap as can be
    except OSError:
        # The error that names the file follows.
        return
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        log.get("pyrmq.tls").warning(
            "users other than its owner may read the private key `%s` (mode %04o): "
            "run `chmod 600 %s`",
            key,
            mode,
            key,
        )
