"""Record the keys that Apache's broker shows: ``python -m tests.interop.record_broker_config``.

Needs Java. It rewrites ``tests/golden/broker_config.json``; ``tests/e2e/test_broker_config.py``
compares ours. Values are left out: some of them are of the machine.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

from pyrmq.codes import RequestCode
from pyrmq.server.options.properties import parse
from tests.interop.ask import ask
from tests.interop.record import GOLDEN
from tests.interop.rocketmq import java_pair
from tests.reference import frame as wire

VERSION = "5.5.0"


def main() -> None:
    """Write the file."""
    names, broker = java_pair(VERSION)
    with names, broker:
        request = wire.Frame(code=RequestCode.GET_BROKER_CONFIG, version=407)
        answer = ask(broker.address, request)
    tree = {
        "version": VERSION,
        "command": "python -m tests.interop.record_broker_config",
        "date": datetime.now(UTC).date().isoformat(),
        "keys": sorted(parse((answer.body or b"").decode())),
    }
    text = json.dumps(tree, indent=1) + "\n"
    (GOLDEN / "broker_config.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
