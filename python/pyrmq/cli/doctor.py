"""`pyrmq doctor`: find what is wrong with a cluster, as seen from this machine.

Exit status 0: no errors, perhaps warnings; 1: at least one error. So it can serve as a probe.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from pyrmq.cli.arguments import add_name_server, parser, seconds
from pyrmq.cli.output import print_json, show_progress

if TYPE_CHECKING:
    import argparse


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq doctor` with these arguments."""
    del verb
    given = _parser().parse_args(words)
    # After the arguments: `--help` needs none of it.
    from pyrmq.doctor import CHECKS, examine

    show = not given.json and sys.stdout.isatty()
    try:
        found = examine(
            given.name_server,
            topic=given.topic,
            group=given.group,
            timeout=given.timeout,
            report=show_progress if show else lambda _: None,
        )
    finally:
        if show:
            show_progress("")
    if given.json:
        for finding in found:
            print_json(asdict(finding))
    else:
        for finding in found:
            print(f"{finding.level}: {finding.cause}\n  fix: {finding.fix}  [{finding.check}]")
        if not found:
            print(f"{given.name_server}: {len(CHECKS)} checks, nothing wrong")
    return 1 if any(finding.level == "error" for finding in found) else 0


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
