"""Which options hold a secret, which files only their owner may read, and which key is meant."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pyrmq._client import log
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["HIDDEN", "check_private", "is_secret", "nearest_keys", "warn_of_readers"]

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


def nearest_keys(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Ask for the known keys that resemble unknown ones; empty if none does.

    The unknown keys are not part of the text: one of them may be a secret in a wrong place.

    Example:
        >>> nearest_keys(["accesKey"], ["accessKey", "secretKey"])
        '; did you mean `accessKey`?'
        >>> nearest_keys(["colour"], ["accessKey", "secretKey"])
        ''
    """
    from difflib import get_close_matches

    choices = list(known)
    near = [get_close_matches(key, choices, n=1) for key in unknown]
    found = dict.fromkeys(key for keys in near for key in keys)
    return f"; did you mean {', '.join(f'`{key}`' for key in found)}?" if found else ""
