"""In whose name a read or write asks, and by which connections: the same on driver and executors.

Spark ships options to executors and shows them in plans, so that they have no secrets: they name
files, which each machine reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyrmq._client.security.credentials import native_security, shared_credentials
from pyrmq._client.security.tls import Tls
from pyrmq._tables.errors import OptionError

if TYPE_CHECKING:
    from pyrmq._client.security.credentials import Credentials
    from pyrmq._tables.options.option_values import OptionValues

__all__ = ["Security"]


class Security(NamedTuple):
    """What the options say.

    Attributes:
        credentials: Path of a credentials file; empty: the environment decides.
        tls: Whether TLS was asked for.
        trust: File of trusted authorities; empty: the system's.
        server_name: Name in the certificates; empty: the host of each address.
    """

    credentials: str = ""
    tls: bool = False
    trust: str = ""
    server_name: str = ""

    @classmethod
    def parse(cls, values: OptionValues) -> Security:
        """Read the options.

        Raises:
            OptionError: `tls` is false, and another option asks for it.
        """
        trust, name = values.text("tls.trust"), values.text("tls.serverName")
        tls = values.flag("tls")
        if values.text("tls") and not tls and (trust or name):
            raise OptionError("tls", "is false, but tls.trust or tls.serverName is given")
        return cls(values.text("credentials"), tls or bool(trust or name), trust, name)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments `credentials` and `tls` of clients.

        Raises:
            ConfigError: The credentials file cannot be used.
        """
        credentials: Credentials | None = None
        if self.credentials:
            credentials = shared_credentials(self.credentials)
        tls = Tls(self.trust or None, server_name=self.server_name or None) if self.tls else None
        return {"credentials": credentials, "tls": tls}

    def native(self) -> dict[str, Any]:
        """Return the same for native connections.

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
        }
        return {name: text for name, text in given.items() if text}
