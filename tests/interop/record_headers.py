"""Record the real servers' answers to requests with a field missing, empty or wrong.

``python -m tests.interop.record_headers`` starts the real name server and broker of every version
and rewrites ``tests/golden/headers.json``; it takes three minutes. For 4.9.7 and 4.6.1 it keeps
only answers whose code differs from 5.5.0.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyrmq.codes import RequestCode
from pyrmq.server.options.properties import parse
from tests.e2e.wire import ask
from tests.interop.artifacts import VERSIONS
from tests.interop.header_cases import play
from tests.interop.rocketmq import JavaBroker, JavaNameServer

TABLE = Path(__file__).parent.parent / "golden" / "headers.json"


def record(version: str) -> dict[str, list[Any]]:
    """Query both servers of one version; `config` has the keys that 319 returns."""
    with ExitStack() as stack:
        names = stack.enter_context(JavaNameServer(version))
        for_broker = stack.enter_context(JavaNameServer(version))
        broker = stack.enter_context(JavaBroker(version, for_broker.address))
        shown = ask(names.address, RequestCode.GET_NAMESRV_CONFIG).body or b""
        return {
            "namesrv": play("namesrv", names.address),
            "broker": play("broker", broker.address),
            "config": sorted(parse(shown.decode())),
        }


def differing(newest: dict[str, list[Any]], other: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return an older version's rows with another code than the newest's, and every key of 319."""
    found: dict[str, list[Any]] = {"config": other["config"]}
    for kind in ("namesrv", "broker"):
        codes = {_key(row): row["answer"]["code"] for row in newest[kind]}
        rows = (row for row in other[kind] if codes[_key(row)] != row["answer"]["code"])
        found[kind] = list(rows)
    return found


def _key(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["case"], row["field"], row["how"]


def render(tree: dict[str, dict[str, list[Any]]]) -> str:
    """Return the file's text with one row per line, so that a changed row is a changed line."""
    parts = []
    for version, servers in tree.items():
        inner = []
        for kind, rows in servers.items():
            lines = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in rows)
            inner.append(f'  "{kind}": [\n{lines}\n  ]')
        parts.append(f' "{version}": {{\n' + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str]) -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=TABLE)
    options = parser.parse_args(arguments)
    whole = {version: record(version) for version in VERSIONS}
    newest, *others = VERSIONS
    tree = {
        newest: whole[newest],
        **{version: differing(whole[newest], whole[version]) for version in others},
    }
    options.out.write_text(render(tree), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
