"""`pyrmq doctor`: find what is wrong with a cluster, as seen from this machine.

Exit status 0: no errors, perhaps warnings; 1: at least one error. So it can serve as a probe.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyrmq.cli.arguments import add_name_server, parser, seconds
from pyrmq.cli.output import escaped

if TYPE_CHECKING:
    import argparse

_COLUMNS = 80
"""Width of a terminal that does not tell it."""


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq doctor` with these arguments."""
    del verb
    given = _parser().parse_args(words)
    # After the arguments: `--help` needs none of it.
    from pyrmq.doctor import CHECKS, examine

    show = not given.json and _is_terminal()
    try:
        found = examine(
            given.name_server,
            topic=given.topic,
            group=given.group,
            timeout=given.timeout,
            report=_show if show else lambda _: None,
        )
    finally:
        if show:
            _show("")
    if given.json:
        for finding in found:
            print(json.dumps(asdict(finding), ensure_ascii=False))
    else:
        for finding in found:
            print(f"{finding.level}: {finding.cause}\n  fix: {finding.fix}  [{finding.check}]")
        if not found:
            print(f"{given.name_server}: {len(CHECKS)} checks, nothing wrong")
    return 1 if any(finding.level == "error" for finding in found) else 0


def _is_terminal() -> bool:
    """Return whether the output is a terminal that can wipe a line; `TERM=dumb` says that not."""
    return sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _show(step: str) -> None:
    """Show a step in place of the one before, in one line of the terminal."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    # A terminal that has its last column filled may begin a new line.
    sys.stderr.write(f"\r\x1b[K{escaped(step)[: columns - 1]}")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    made = parser("doctor", "Find what is wrong with a cluster, with the cause and the fix.")
    add_name_server(made)
    made.add_argument("--topic", help="also check that this topic exists and can be used")
    made.add_argument("--group", help="also check that the members of this consumer group agree")
    made.add_argument(
        "--timeout",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="limit for each request, default 3; all servers are asked at once, and one that hangs "
        "is given up after 4.5 s in all, or this if it is more",
    )
    return made
