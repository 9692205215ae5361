"""Secrets of users in the system's keyring."""

from __future__ import annotations

from pyrmq.errors import ConfigError

__all__ = ["KEYRING", "secret_of_keyring", "service_and_user"]

KEYRING = "keyring:"
"""What the name of such a secret begins with: ``keyring:SERVICE/USER``."""


def secret_of_keyring(service: str, user: str) -> str:
    """Return the secret of a user, stored under the name of a service.

    Raises:
        ConfigError: The package is missing, the keyring cannot be used, or it has no such secret.
    """
    try:
        import keyring
    except ImportError as error:
        raise ConfigError(
            f"the credentials of {user!r} are to come from a keyring, and the package `keyring` is "
            "not installed: pip install 'pyrmq-rocketmq[keyring]'"
        ) from error
    try:
        secret = keyring.get_password(service, user)
    except Exception as error:
        # Each backend has its own exceptions. Their text may contain secrets, so only the type is
        # shown.
        raise ConfigError(
            f"the keyring cannot be used for service {service!r}, user {user!r}: "
            f"{type(error).__name__} of {type(keyring.get_keyring()).__name__}; `keyring diagnose` "
            "says which keyring it is"
        ) from error
    if not secret:
        raise ConfigError(
            f"the keyring has no secret for service {service!r}, user {user!r}: store it with "
            f"`keyring set {service} {user}`"
        )
    return secret


def service_and_user(text: str) -> tuple[str, str]:
    """Read `keyring:SERVICE/USER`.

    Raises:
        ConfigError: It has another form.

    Example:
        >>> service_and_user("keyring:rocketmq/eu/alice")
        ('rocketmq/eu', 'alice')
    """
    service, _, user = text.removeprefix(KEYRING).rpartition("/")
    if not service or not user:
        raise ConfigError(f"credentials are {text!r}: it must be `keyring:SERVICE/USER`")
    return service, user
