"""Options of the two servers: one frozen, keyword-only data class per role.

Names are Apache's in snake_case, one to one (`flushDiskType` is `flush_disk_type`), so
`broker.conf` loads unchanged. `_core` holds the same options in Rust, and a test compares the two.
"""

from pyrmq.config.broker import BROKER_PORT, BROKER_STATUS, BrokerOptions
from pyrmq.config.name_server import NAME_SERVER_PORT, NAME_SERVER_STATUS, NameServerOptions
from pyrmq.config.option import Options

__all__ = [
    "BROKER_PORT",
    "BROKER_STATUS",
    "NAME_SERVER_PORT",
    "NAME_SERVER_STATUS",
    "BrokerOptions",
    "NameServerOptions",
    "Options",
]
