"""Options of both servers that limit whom they serve and how much; Apache has none of them."""

from __future__ import annotations

from pyrmq.config.option import LONG_MAX, PORT_MAX, option
from pyrmq.config.tls import TLS_KEYS, TlsOptions


class ProtectionOptions(TlsOptions):
    """Options for load balancers, limits and administration; those of TLS are elsewhere."""

    proxy_protocol_sources: str = option(
        default="",
        text="load balancers whose PROXY headers (version 1 and 2) are believed: addresses and "
        "networks (`10.0.0.7;10.1.0.0/16`); empty: a header closes the connection (pyrmq only)",
    )
    max_connections_per_address: int = option(
        default=0,
        text="connections that one client address may have; 0: no limit (pyrmq only)",
        unit="connections",
    )
    max_requests_per_address: int = option(
        default=0,
        text="requests that one client address may send per second; 0: no limit (pyrmq only)",
        unit="requests",
        maximum=1_000_000_000,
    )
    max_bytes_per_address: int = option(
        default=0,
        text="bytes that one client address may send and receive per second; 0: no limit "
        "(pyrmq only)",
        unit="bytes",
        maximum=LONG_MAX,
    )
    max_requests_per_user: int = option(
        default=0,
        text="requests that one user may send per second; 0: no limit (pyrmq only)",
        unit="requests",
        maximum=1_000_000_000,
    )
    max_bytes_per_user: int = option(
        default=0,
        text="bytes that one user may send and receive per second; 0: no limit (pyrmq only)",
        unit="bytes",
        maximum=LONG_MAX,
    )
    failed_login_max_delay: int = option(
        default=5000,
        text="maximum delay of the answer to a failed login; delays begin at the fourth failure of "
        "an address; 0: none (pyrmq only)",
        unit="ms",
        maximum=60_000,
    )
    admin_listen_port: int = option(
        default=0,
        text="the only port that serves administrators' requests; 0: every port does (pyrmq only)",
        maximum=PORT_MAX,
    )
    admin_bind_address: str = option(
        default="127.0.0.1", text="address that `adminListenPort` listens on (pyrmq only)"
    )


PROTECTION_KEYS = tuple(
    item.apache for item in ProtectionOptions.fields if item.apache not in TLS_KEYS
)
"""The keys of these options, without those of TLS."""
