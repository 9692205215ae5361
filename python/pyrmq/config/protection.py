"""Options of both servers that say whom they serve, and how much; Apache has none of them."""

from __future__ import annotations

from pyrmq.config.option import option
from pyrmq.config.tls import TLS_KEYS, TlsOptions


class ProtectionOptions(TlsOptions):
    """Options of load balancers, limits and administration, besides those of TLS."""

    proxy_protocol_sources: str = option(
        default="",
        text="load balancers whose PROXY headers (version 1 and 2) are believed: addresses and "
        "networks (`10.0.0.7;10.1.0.0/16`); empty: a header closes the connection (pyrmq only)",
    )


PROTECTION_KEYS = tuple(
    item.apache for item in ProtectionOptions.fields if item.apache not in TLS_KEYS
)
"""The keys of these options, without those of TLS."""
