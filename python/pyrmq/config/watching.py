"""Options of a broker's metrics and logs. Apache has none of them."""

from __future__ import annotations

from pyrmq.config.option import PORT_MAX, option
from pyrmq.config.protection import ProtectionOptions


class WatchedOptions(ProtectionOptions):
    """Options of the metrics port and of the log."""

    metrics_port: int = option(
        default=0,
        text="port of /metrics (Prometheus), /live and /ready; 0 for none (pyrmq only)",
        maximum=PORT_MAX,
    )
    metrics_top: int = option(
        default=250,
        text="topics, and groups on topics, that /metrics lists by name; it sums up the others "
        "(pyrmq only)",
        maximum=100_000,
        live=True,
    )
    log_level: str | None = option(
        default=None,
        text="lowest level that the logger `pyrmq` of the process writes; default: that of "
        "`--log-level` or the application (pyrmq only)",
        choices=("debug", "info", "warning", "error"),
        live=True,
    )
