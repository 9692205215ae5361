"""Apache's keys about security: those that only Python reads, and those that stop a start."""

from __future__ import annotations

from pyrmq.config.protection import PROTECTION_KEYS
from pyrmq.config.tls import TLS_KEYS
from pyrmq.errors import ConfigError

PYTHON_ONLY = (
    "authenticationEnabled",
    "authorizationEnabled",
    "authConfigPath",
    "innerClientCredentialsPath",
    *TLS_KEYS,
    *PROTECTION_KEYS,
)
"""Apache's names of the options that the core of neither server reads."""

REFUSED_KEYS = {
    "initAuthenticationUser": "it has a password: put the user into the file of `authConfigPath`",
    "innerClientAuthenticationCredentials": "it has a secret: put it into a file of mode 0600 and "
    "name that by `innerClientCredentialsPath`",
    "migrateAuthFromV1Enabled": "accounts of 4.x are not converted to users; `aclEnable` of a "
    "broker uses them unchanged",
    "tls.server.keyPassword": "it is a secret: put it into a file of mode 0600 and name that by "
    "`tls.config.file`",
    "tls.client.keyPassword": "it is a secret: put it into a file of mode 0600 and name that by "
    "`tls.config.file`",
    "authenticationProvider": "only users with passwords are built",
    "authorizationProvider": "only policies of users are built",
    "authenticationWhitelist": "every request code is checked",
    "authorizationWhitelist": "every request code is checked",
}
"""Apache's keys for protection that is not built here; if one is set, a server does not start."""

_OF_BROKERS = {
    "aclEnable": "brokers check the accounts of 4.x; a name server checks users of 5.x, with "
    "`authenticationEnabled`",
}
"""Keys for protection that only brokers have."""


def refuse_unsupported(role: str, properties: dict[str, str]) -> None:
    """Refuse a property file that enables protection which this server does not have.

    Raises:
        ConfigError: It enables such protection.

    Example:
        >>> refuse_unsupported("name server", {"aclEnable": "true"})  # doctest: +SKIP
    """
    refused = REFUSED_KEYS if role == "broker" else {**REFUSED_KEYS, **_OF_BROKERS}
    for key, reason in refused.items():
        value = properties.get(key, "").strip()
        if value and value.lower() != "false":
            raise ConfigError(
                f"the {role} does not support `{key}`: {reason}; it does not start, because "
                "it would serve everybody. docs/security.md lists what is built"
            )
