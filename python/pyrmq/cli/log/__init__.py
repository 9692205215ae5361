"""`pyrmq log inspect | verify | export | repair`: tools for a store directory.

All but `repair --choice` only read. They work with a running broker and on a Java broker's store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.cli.arguments import parser
from pyrmq.cli.log.directory import StoreDirectory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq log` with these arguments."""
    given = _parser().parse_args(words)
    directory = StoreDirectory(given.directory, given.commit_log)
    work: Callable[[StoreDirectory, argparse.Namespace], int]
    match given.what:
        case "inspect":
            from pyrmq.cli.log.inspect import run as work
        case "verify":
            from pyrmq.cli.log.verify import run as work
        case "export":
            from pyrmq.cli.log.export import run as work
        case _:
            from pyrmq.cli.log.repair import run as work
    return work(directory, given)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "log", "Inspect, verify, export or repair a store directory, ours or a Java broker's."
    )
    verbs = made.add_subparsers(dest="what", required=True, metavar="COMMAND")
    shared = {
        "inspect": "show files, ranges, times, topics and gaps",
        "verify": "check every record and queue entry; exit status 1 if one is wrong",
        "export": "write messages as JSON lines or an Arrow file",
        "repair": "show ways to repair damage and what each loses; change nothing without --choice",
    }
    for verb, text in shared.items():
        one = verbs.add_parser(verb, help=text, description=text, allow_abbrev=False)
        one.add_argument("directory", help="the broker's storePathRootDir")
        one.add_argument(
            "--commit-log",
            metavar="DIR",
            help="the commit log's directory, if storePathCommitLog is set",
        )
        default = "; the default, for messages" if verb == "export" else ""
        one.add_argument("--json", action="store_true", help=f"one JSON object per line{default}")
        if verb == "inspect":
            one.add_argument(
                "--topics", action="store_true", help="group by topic instead of by file"
            )
        if verb == "verify":
            one.add_argument(
                "--most",
                type=int,
                default=100,
                metavar="N",
                help="maximum problems to show (default: 100)",
            )
        if verb == "export":
            _add_export(one)
        if verb == "repair":
            one.add_argument(
                "--choice",
                choices=["cut", "skip"],
                help="cut: the log ends at the first damage; skip: the rest of the damaged file is "
                "marked as unused, later files stay",
            )
    return made


def _add_export(to: argparse.ArgumentParser) -> None:
    to.add_argument("--topic", help="only messages of this topic")
    to.add_argument("--key", help="only messages with this key")
    to.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        help="stored at or after: ISO 8601, or ms since 1970",
    )
    to.add_argument("--to", dest="until", metavar="TIME", help="stored before")
    to.add_argument("--count", type=int, metavar="N", help="end after N messages")
    to.add_argument(
        "--arrow",
        metavar="FILE",
        help="write an Arrow IPC file (needs pyarrow) instead of JSON lines",
    )
