"""Write docs/rights.md: the right that each request code needs, from the built module.

Run it with `make docs`. A test fails if the page differs from the output.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyrmq import _core
from pyrmq.codes import RequestCode
from tools.page import write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "rights.md"

_HEAD = """\
# The right that each request needs

Written by `tools/gen_rights.py` from `crates/auth/src/requests.rs`; do not edit.

The subject of a request is the user that signed it: `User:` and its name. The user needs one of the
actions on each resource of the row, in its policies or as a super user. Name server and broker use
the same rows. [decisions/0008](decisions/0008-who-may-what.md) gives the reasons.

A name in backticks is that of a field of the header, or of a member of the body. The retry topic
`%RETRY%g` stands for group `g`: the row's actions are needed there, and `Sub` to send to it. A
request without the field or body of its row needs `Update` on the cluster.

| code | name | one of the actions | on |
|---|---|---|---|
"""
_UNKNOWN = 7_777
"""A code that neither Apache nor we use."""


def render() -> str:
    """Return the page's text."""
    rows = [(int(code), code.name) for code in sorted(RequestCode)]
    rows.append((30_001, "ours: `pyrmq nameserver status`"))
    lines = []
    for code, name in rows:
        actions, resources = _core.needed_right(code)
        lines.append(f"| {code} | {name} | {actions} | {resources} |")
    actions, resources = _core.needed_right(_UNKNOWN)
    lines.append(f"| others | unknown codes | {actions} | {resources} |")
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(write(PAGE, render()))
