"""`pyrmq store snapshot | restore`: a store as of one position of its log.

A broker may write meanwhile. The copy is in the order that its start relies on: first what must not
be ahead of the log (checkpoint, offsets, timers, queues), then the log up to its end at that
moment, then what must not be older than it (topics, groups). To the start it looks like the
directory of a machine that lost power: queues follow the log again from the checkpoint on. The key
index is not copied: it is filled again from the log.

Full files of the log are never written again, so they may be hard links. A broker that must change
one all the same, because a crash left it damaged, first gives it its own copy.
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq.cli.log.directory import StoreDirectory
from pyrmq.cli.log.files import sync
from pyrmq.cli.output import print_json
from pyrmq.cli.store.hold import hold
from pyrmq.cli.store.taking import FORMAT, NOTE, Snapshot, Taking
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

_TRIES = 5


def run_snapshot(given: argparse.Namespace) -> int:
    """Run `pyrmq store snapshot` with these arguments."""
    began = time.monotonic()
    target = Path(given.target)
    if target.exists() or target.is_symlink():
        raise ConfigError(f"{target} exists already: name a directory that does not")
    made = take(StoreDirectory(given.directory, given.commit_log), target)
    _say(given, made, f"snapshot {target}", began)
    return 0


def run_restore(given: argparse.Namespace) -> int:
    """Run `pyrmq store restore` with these arguments."""
    began = time.monotonic()
    source, target = Path(given.directory), Path(given.target)
    note = read_note(source)
    is_empty = target.is_dir() and not any(target.iterdir())
    if (target.exists() or target.is_symlink()) and not is_empty:
        raise ConfigError(
            f"{target} exists already and is not empty: move it away, or restore to another "
            "directory"
        )

    def check(made: Snapshot) -> None:
        if made.position != note.position:
            raise ConfigError(
                f"{source} ends at position {made.position}, its note says {note.position}: it was "
                "changed. Fix: `pyrmq log verify` shows what is wrong with it"
            )

    made = take(StoreDirectory(str(source)), target, leave_out=(NOTE,), check=check)
    _say(given, made, f"restored {target}", began)
    return 0


def read_note(snapshot: Path) -> Snapshot:
    """Read the note in a snapshot.

    Raises:
        ConfigError: It is not a snapshot, or one of a later version.
    """
    try:
        tree = json.loads((snapshot / NOTE).read_text(encoding="utf-8"))
        if tree.get("format") != FORMAT:
            raise ConfigError(f"{snapshot} was made by a later version of pyrmq")
        return Snapshot(**tree)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{snapshot} is not a snapshot of `pyrmq store snapshot`: its file {NOTE} is "
            f"missing or damaged ({error})"
        ) from error


def take(
    directory: StoreDirectory,
    target: Path,
    *,
    leave_out: Iterable[str] = (),
    check: Callable[[Snapshot], object] = lambda _: None,
) -> Snapshot:
    """Make a snapshot of a store.

    Args:
        directory: The store.
        target: The snapshot. It must not exist, or be an empty directory, which stays and may be a
            mount.
        leave_out: Files of the root that are not copied.
        check: Called with the snapshot before it is moved to the target; an error refuses it.

    Raises:
        ConfigError: Another tool locks the store, the log is damaged, or the target is inside.
        OSError: Something cannot be read or written. Nothing is left behind.
    """
    _check_place(directory, target)
    is_there = target.is_dir()
    parent = target.absolute() if is_there else target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with hold(directory) as held:
        for _ in range(_TRIES):
            part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=parent))
            try:
                made = Taking(directory, part, held, frozenset(leave_out)).run()
                if made is not None:
                    check(made)
                    if is_there:
                        _move_into(part, target)
                    else:
                        part.chmod(0o755)
                        part.rename(target)
                    sync(parent)
                    return made
            except OSError as error:
                raise _explained(error, parent) from error
            finally:
                shutil.rmtree(part, ignore_errors=True)
    raise OSError(
        f"the broker on {directory.root} moved its checkpoint or deleted a topic during each of "
        f"{_TRIES} tries: try again"
    )


def _check_place(directory: StoreDirectory, target: Path) -> None:
    """Refuse a target inside the store, which would be copied into itself."""
    place = target.resolve()
    for inside in (directory.root, directory.commit_log):
        if place.is_relative_to(inside.resolve()):
            raise ConfigError(f"{target} is inside {inside}: name a directory outside the store")


def _move_into(part: Path, target: Path) -> None:
    """Move everything into an empty directory, the log last: without it there is no store."""
    paths = sorted(part.iterdir(), key=lambda path: path.name == "commitlog")
    try:
        for path in paths:
            path.rename(target / path.name)
    except OSError:
        for path in paths:
            if not path.exists():
                (target / path.name).rename(path)
        raise


def _explained(error: OSError, parent: Path) -> OSError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OSError(f"{parent} is full: {error.strerror or error}. Nothing was left there")
    return OSError(f"{error}. Nothing was left in {parent}")


def _say(given: argparse.Namespace, made: Snapshot, text: str, began: float) -> None:
    seconds = time.monotonic() - began
    if given.json:
        print_json({**asdict(made), "seconds": round(seconds, 3)})
        return
    mib = 1 << 20
    print(
        f"{text}: the log from {made.start} to {made.position}, {made.linked_bytes // mib} MiB "
        f"linked, {made.copied_bytes // mib} MiB copied, in {seconds:.1f} s"
    )
