"""docs/compat.md from the table of codes and the rows of both servers, as they are built.

Run it by `make docs`; a test fails when the page is not what this writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyrmq import Broker, NameServer, _core
from pyrmq.codes import RequestCode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compat.md"

_HEAD = """\
# What answers which request code

Written by `tools/gen_compat.py` from `crates/remoting/src/codes.rs` and the tables of the two
servers; do not edit.

`native`: Rust, on the connection's task. `python`: a worker thread in Python. `refused`: answered
REQUEST_CODE_NOT_SUPPORTED with a remark that says why. A code that is not listed is refused too,
unless an application registers a handler for it (`Broker.processors.register`,
`NameServer.processors.register`).

Beside the codes: Spark writes no topic yet. `df.write.format("rocketmq")` and `df.writeStream`
raise an error that says so.

| code | name | name server | broker | note |
|---|---|---|---|---|
"""

Rows = dict[int, tuple[str, str]]


def _rows(native: list[tuple[int, str, str]], python: list[int]) -> Rows:
    rows = {code: (kind, note) for code, kind, note in native}
    for code in python:
        kind, note = rows.get(code, ("refused", ""))
        if kind != "native":
            rows[code] = ("python", note if kind == "python" else "")
    return rows


def render() -> str:
    """The page's text."""
    names = _rows(_core.name_server_rows(), NameServer().processors.codes)
    brokers = _rows(_core.broker_rows(), Broker().processors.codes)
    lines = []
    for code in sorted(RequestCode):
        cells = [rows.get(code, ("refused", "")) for rows in (names, brokers)]
        notes = [note for kind, note in cells if note and kind != "refused"]
        if not notes:
            # Why neither serves it: the broker's reason says more, since most codes are a broker's.
            notes = [note for _, note in reversed(cells) if note][:1]
        kinds = " | ".join("" if kind == "refused" else kind for kind, _ in cells)
        if all(kind == "refused" for kind, _ in cells):
            kinds = "refused | refused"
        lines.append(f"| {int(code)} | {code.name} | {kinds} | {'; '.join(notes)} |")
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
