"""The options of a running broker: 25 and 26 (Apache `AdminBrokerProcessor`)."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from pyrmq.server.options.properties import parse, write
from pyrmq.server.options.runtime import changes
from pyrmq.server.processors import Response

if TYPE_CHECKING:
    from pyrmq import _core
    from pyrmq.broker.server import Broker
    from pyrmq.server.processors import Handler


def rows(server: Broker) -> dict[int, Handler]:
    """The handlers of this family."""
    began_ms = int(time() * 1000)

    def update(request: _core.Request) -> None:
        # Under the lock: no other thread may change options between comparison and change.
        with server.changing:
            server.reconfigure(changes(server.options, request))

    def show(request: _core.Request) -> Response:
        del request
        text = write(
            {**_defaults_of_apache(), **server.options.to_properties(), **_addresses(server)}
        )
        version = f'{{"counter":{server.changes},"stateVersion":0,"timestamp":{began_ms}}}'
        return Response(fields={"version": version}, body=text.encode())

    return {
        25: update,  # UPDATE_BROKER_CONFIG
        26: show,  # GET_BROKER_CONFIG
    }


def _defaults_of_apache() -> dict[str, str]:
    """Apache's keys that are not options here; tools read some of them."""
    # Imported on demand: it is rarely needed.
    from importlib.resources import files

    text = files("pyrmq.broker").joinpath("apache_defaults.properties").read_text("utf-8")
    return parse(text)


def _addresses(server: Broker) -> dict[str, str]:
    """Keys whose defaults depend on the machine."""
    host, _, port = server.address.rpartition(":")
    return {
        "brokerIP1": host,
        "brokerIP2": host,
        "listenPort": port,
        "namesrvAddr": server.options.namesrv_addr or "",
    }
