"""OpenTelemetry: spans and figures of producers and consumers, and the context in messages.

Needs the extra ``pyrmq-rocketmq[otel]``, which is only ``opentelemetry-api``. The SDK that your
application configures exports spans and figures; without one they are dropped.

Example:
    >>> from pyrmq import Producer
    >>> from pyrmq.testing import cluster
    >>> telemetry = Telemetry()
    >>> with cluster() as running:
    ...     with Producer(name_server=running.name_server, hooks=[telemetry]) as producer:
    ...         telemetry.observe(producer)
    ...         producer.send("orders", b"two coffees").status.name
    'SEND_OK'
"""

try:
    import opentelemetry.trace as _  # noqa: F401 - the extra may be missing
except ImportError as _cause:
    raise ImportError(
        "pyrmq.otel needs opentelemetry-api: pip install 'pyrmq-rocketmq[otel]'"
    ) from _cause

from pyrmq.otel.consume import ConsumeTelemetry as ConsumeTelemetry
from pyrmq.otel.consume import context_of as context_of
from pyrmq.otel.send import Telemetry as Telemetry
from pyrmq.otel.server import export_server as export_server

__all__ = ["ConsumeTelemetry", "Telemetry", "context_of", "export_server"]
