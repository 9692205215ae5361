"""`pyrmq store snapshot | restore | usage`: copies a store directory, and shows its disk use.

They work while the broker runs, on a stopped one's directory, and on a Java broker's store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq.cli.arguments import parser

if TYPE_CHECKING:
    import argparse


def run(_verb: str, words: list[str]) -> int:
    """Run `pyrmq store` with these arguments."""
    given = _parser().parse_args(words)
    match given.what:
        case "snapshot":
            from pyrmq.cli.store.snapshot import run_snapshot as work
        case "restore":
            from pyrmq.cli.store.snapshot import run_restore as work
        case _:
            from pyrmq.cli.store.usage import run as work
    return work(given)


def _parser() -> argparse.ArgumentParser:
    made = parser("store", "Copy a store directory, ours or a Java broker's, or show its disk use.")
    verbs = made.add_subparsers(dest="what", required=True, metavar="snapshot|restore|usage")
    snapshot = verbs.add_parser(
        "snapshot",
        help="copy a store, also while its broker runs",
        description="Copy a store as of one position of its log, also while its broker runs. "
        "Full files of the log are hard links where the file system is the same.",
        allow_abbrev=False,
    )
    snapshot.add_argument("directory", help="the broker's storePathRootDir")
    snapshot.add_argument("target", help="the snapshot; it must not exist")
    restore = verbs.add_parser(
        "restore",
        help="make a store directory from a snapshot",
        description="Make a store directory from a snapshot, which is not changed.",
        allow_abbrev=False,
    )
    restore.add_argument(
        "directory", metavar="snapshot", help="directory made by `pyrmq store snapshot`"
    )
    restore.add_argument("target", help="the store directory; it must not exist, or be empty")
    usage = verbs.add_parser(
        "usage",
        help="disk use by topic",
        description="Show how many bytes each topic has in the log and in its queues.",
        allow_abbrev=False,
    )
    usage.add_argument("directory", help="the broker's storePathRootDir")
    for each in (snapshot, usage):
        each.add_argument(
            "--commit-log",
            metavar="DIR",
            help="the commit log's directory, if storePathCommitLog is set",
        )
    for each in (snapshot, restore, usage):
        each.add_argument("--json", action="store_true", help="one JSON object per line")
    return made
