"""docs/compat.md from the table of codes and the rows of both servers, as they are built.

Run it by `make docs`; a test fails when the page is not what this writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyrmq import Broker, NameServer, _core
from pyrmq.codes import RequestCode

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compat.md"
APACHE = ROOT / "tests" / "golden" / "codes.json"

_HEAD = """\
# What answers which request code

Written by `tools/gen_compat.py` from `crates/remoting/src/codes.rs` and the tables of the two
servers; do not edit.

`native`: Rust, on the connection's task. `python`: a worker thread in Python. `refused`: answered
REQUEST_CODE_NOT_SUPPORTED with a remark that says why. A code that is not listed is refused too,
unless an application registers a handler for it (`Broker.processors.register`,
`NameServer.processors.register`).

`versions`: which of 4.6.1, 4.9.7 and 5.5.0 have the number in their `RequestCode`, read out of
their jars (`tests/interop/record_codes.py`). `internal`: none has it, Apache's controller uses it
within itself.

Beside the codes: Spark writes no topic yet. `df.write.format("rocketmq")` and `df.writeStream`
raise an error that says so.

| code | name | versions | name server | broker | note |
|---|---|---|---|---|---|
"""

Rows = dict[int, tuple[str, str]]


def _rows(native: list[tuple[int, str, str]], python: list[int]) -> Rows:
    rows = {code: (kind, note) for code, kind, note in native}
    for code in python:
        kind, note = rows.get(code, ("refused", ""))
        if kind != "native":
            rows[code] = ("python", note if kind == "python" else "")
    return rows


def _versions() -> dict[int, str]:
    """The Apache versions that know a request code, oldest first."""
    recorded = json.loads(APACHE.read_text(encoding="utf-8"))
    known: dict[int, list[str]] = {}
    for version in reversed(recorded):
        for code in set(recorded[version]["request"].values()):
            known.setdefault(code, []).append(version.rsplit(".", 1)[0])
    return {code: ", ".join(versions) for code, versions in known.items()}


def render() -> str:
    """The page's text."""
    names = _rows(_core.name_server_rows(), NameServer().processors.codes)
    brokers = _rows(_core.broker_rows(), Broker().processors.codes)
    versions = _versions()
    lines = []
    for code in sorted(RequestCode):
        cells = [rows.get(code, ("refused", "")) for rows in (names, brokers)]
        if all(kind == "refused" for kind, _ in cells):
            # The name server knows why for what it could serve, the broker for all else.
            notes = [next(note for _, note in cells if note)]
            kinds = "refused | refused"
        else:
            notes = [note for kind, note in cells if note and kind != "refused"]
            kinds = " | ".join("" if kind == "refused" else kind for kind, _ in cells)
        known = versions.get(code, "internal")
        lines.append(f"| {int(code)} | {code.name} | {known} | {kinds} | {'; '.join(notes)} |")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with `--check` only say whether it is up to date."""
    text = render()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
