"""Credentials and TLS of reads and writes, equal on driver and executors.

Spark ships options to executors. So options should name files, which each machine reads. A secret
as an option works, too: Spark leaves it out of plans and logs (`spark.redaction.regex`), but the
shipped options contain it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrmq._client.security.credentials import Credentials
from pyrmq._client.security.effective import native_security, shared_credentials
from pyrmq._client.security.secrets import HIDDEN
from pyrmq._client.security.tls import Tls
from pyrmq._tables.errors import OptionError

if TYPE_CHECKING:
    from pyrmq._tables.options.option_values import OptionValues

__all__ = ["GivenSecurity", "Security"]


class Security(NamedTuple):
    """Credentials and TLS from the options.

    Attributes:
        credentials: Path of a credentials file; empty: the environment decides.
        tls: Whether TLS was requested.
        trust: File of trusted authorities; empty: the system's.
        server_name: Name in the certificates; empty: the host of each address.
        access_key: The user; empty without `secret_key`.
        secret_key: The user's secret, which no `repr` contains.
    """

    credentials: str = ""
    tls: bool = False
    trust: str = ""
    server_name: str = ""
    access_key: str = ""
    secret_key: str = ""

    @classmethod
    def parse(cls, values: OptionValues) -> Security:
        """Read the options.

        Raises:
            OptionError: `tls` is false and another option needs it, a user has no secret, or a
                secret is given together with a file of credentials.
        """
        trust, name = values.text("tls.trust"), values.text("tls.serverName")
        tls = values.flag("tls")
        if values.text("tls") and not tls and (trust or name):
            raise OptionError("tls", "is false, but tls.trust or tls.serverName is given")
        file, user = values.text("credentials"), values.text("accessKey")
        # Unchanged: blanks may be part of a secret.
        secret = values.given.get("secretKey", "")
        if bool(user) != bool(secret.strip()):
            missing, given = ("accessKey", "secretKey") if secret else ("secretKey", "accessKey")
            raise OptionError(missing, f"is missing: {given} is given, and they belong together")
        if user and file:
            raise OptionError("credentials", "excludes accessKey and secretKey: give one of them")
        return cls(file, tls or bool(trust or name), trust, name, user, secret)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments `credentials` and `tls` of clients.

        Raises:
            ConfigError: The credentials file cannot be used.
        """
        credentials: Credentials | None = None
        if self.credentials:
            credentials = shared_credentials(self.credentials)
        elif self.access_key:
            credentials = _of_options(self.access_key, self.secret_key)
        tls = Tls(self.trust or None, server_name=self.server_name or None) if self.tls else None
        return {"credentials": credentials, "tls": tls}

    def native(self) -> dict[str, Any]:
        """Return them for native connections.

        Raises:
            ConfigError: A file cannot be used.
        """
        return native_security(**self.arguments())

    def options(self) -> dict[str, str]:
        """Return them as options again."""
        given = {
            "credentials": self.credentials,
            "tls": "true" if self.tls else "",
            "tls.trust": self.trust,
            "tls.serverName": self.server_name,
            "accessKey": self.access_key,
            "secretKey": self.secret_key,
        }
        return {name: text for name, text in given.items() if text}

    def __repr__(self) -> str:
        """Show what is set, never the secret."""
        shown = self._asdict()
        if self.secret_key:
            shown["secret_key"] = HIDDEN
        return f"Security({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class GivenSecurity(NamedTuple):
    """Credentials and TLS that the caller of a read in this process gives instead of options.

    Attributes:
        credentials: The user; None: the environment decides.
        tls: TLS of the connections; None: the credentials or the environment decide.
    """

    credentials: Credentials | None
    tls: Tls | None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments `credentials` and `tls` of clients."""
        return self._asdict()

    def native(self) -> dict[str, Any]:
        """Return them for native connections.

        Raises:
            ConfigError: One of them is of another type, or a file cannot be used.
        """
        return native_security(self.credentials, self.tls)


@lru_cache(maxsize=16)
def _of_options(access_key: str, secret_key: str) -> Credentials:
    """Return one object per user, so that clients of a user share connections."""
    return Credentials(access_key, secret_key)
