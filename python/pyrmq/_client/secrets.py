"""Which options hold a secret, and which files only their owner may read."""

from __future__ import annotations

import stat

from pyrmq.errors import ConfigError

__all__ = ["HIDDEN", "check_private", "is_secret"]

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
        mode: Its mode, as `os.stat` gives it.

    Raises:
        ConfigError: Others may read it.

    Example:
        >>> check_private("the passwords in", "users.json", 0o100600)
    """
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"others than its owner may read {what} `{path}` (mode {stat.S_IMODE(mode):04o}): run "
            f"`chmod 600 {path}`"
        )
