"""Record Apache's request and response codes: ``python -m tests.interop.record_codes``.

Reads the constants out of the published jars of every version and rewrites
``tests/golden/codes.json``. No server runs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.interop.artifacts import VERSIONS, jars

CODES = Path(__file__).parent.parent / "golden" / "codes.json"
KINDS = {"request": "RequestCode", "response": "ResponseCode"}
PLACES = ("org.apache.rocketmq.remoting.protocol", "org.apache.rocketmq.common.protocol")
"""Packages of the two classes: that of 5.x, that of 4.x."""
INHERITED = "RemotingSysResponseCode"
_CONSTANT = re.compile(r"public static final int (\w+) = (-?\d+);")


def constants(version: str, name: str) -> dict[str, int]:
    """Return the numbers of one class, by name; none where the version has no such class."""
    for place in PLACES:
        done = subprocess.run(
            [
                "javap",
                "-constants",
                "-cp",
                ":".join(map(str, sorted(jars(version).glob("rocketmq-*.jar")))),
                f"{place}.{name}",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode == 0:
            return {key: int(value) for key, value in _CONSTANT.findall(done.stdout)}
    return {}


def record(version: str) -> dict[str, dict[str, int]]:
    """Return both kinds of codes of a version, in ascending order of their numbers."""
    found = {}
    for kind, name in KINDS.items():
        codes = constants(version, name)
        if kind == "response":
            codes |= constants(version, INHERITED)
        found[kind] = dict(sorted(codes.items(), key=lambda pair: pair[1]))
    return found


def main() -> int:
    """Write the file."""
    tree = {version: record(version) for version in VERSIONS}
    CODES.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
